//! Texts that name image files: the images are read in their place.
//!
//! ```text
//! texts of all records ─ NamedImages ─▶ the files of each record (4 bytes each)
//!   plan ─▶ the table's reads, then the files' ─▶ parse ─▶ the table's values, with images instead of names
//! ```
//!
//! The names are read once, while the dataset is opened. A name without a file makes its record a bad sample.

mod dataset;
mod names;

use std::sync::Arc;

use infeed_core::error::{
    Error, ErrorKind, Result,
    setting::{FIELD, IMAGE_ROOT},
};
use infeed_store::{Object, Source};

pub(crate) use self::names::NameField;
use self::{
    dataset::NamedFiles,
    names::{FileNumbers, MISSING, column_of, texts_of},
};
use crate::{
    declared::Said,
    format::{Format, OpenOptions},
    label_table::{NamedImages, Names},
    look::look,
    names::{is_image, parent},
    objects::list,
    record::Dataset,
};

/// The fields of a place whose texts look like names of image files, as a format found them.
#[doc(hidden)]
#[derive(Debug)]
pub struct LikeFiles(pub Vec<String>);

/// Tables, and the images that they name.
#[derive(Debug)]
pub(crate) struct Place {
    /// The format that the place was taken for.
    format: &'static str,
    tables: (Source, Vec<Object>),
    images: (Source, Vec<Object>),
}

impl Place {
    /// The objects of a place, which was taken for this format.
    pub(crate) fn of(source: &Source, objects: &[Object], format: &'static str) -> Self {
        let (images, tables) = objects.iter().cloned().partition(|object| is_image(&object.name));
        Self { format, tables: (source.clone(), tables), images: (source.clone(), images) }
    }

    /// The dataset `table`, which `format` has opened, with images instead of names, in the fields that the user
    /// declared. If the place has images, also in those that look so.
    ///
    /// # Errors
    /// Those of [`with_images`](Self::with_images), and of listing the folder of a table.
    pub(crate) async fn read(
        mut self,
        format: &dyn Format,
        table: Arc<dyn Dataset>,
        options: &OpenOptions,
    ) -> Result<Arc<dyn Dataset>> {
        let fields = self.fields(options)?;
        if fields.is_empty() {
            return Ok(table);
        }
        let (source, images) = &mut self.images;
        let elsewhere = match &options.image_root {
            Some(root) => Some(Source::parse(root)?),
            None if images.is_empty() => source.around(),
            None => None,
        };
        if let Some(place) = elsewhere {
            let (place, objects) = list(place, options.manifests.as_deref(), None).await?;
            *images = objects;
            images.retain(|object| is_image(&object.name));
            *source = place;
        }
        self.with_images(format, table, fields, options).await
    }

    /// The fields that name images.
    fn fields(&self, options: &OpenOptions) -> Result<Vec<NameField>> {
        let (source, images) = &self.images;
        let field = |name: &String, if_there| NameField { name: name.clone(), becomes: name.clone(), if_there };
        let said = options.said.iter().filter(|(_, said)| *said == Said::Files);
        let mut fields: Vec<NameField> = said.map(|(name, _)| field(name, false)).collect();
        let like = options.findings.get::<LikeFiles>(self.tables.0.url());
        let like = like.as_ref().map_or(&[][..], |like| &like.0);
        let unsaid = like.iter().filter(|name| options.said.iter().all(|(said, _)| said != *name));
        let mut unsaid = unsaid.peekable();
        let has_root = options.image_root.is_some();
        match (images.first(), unsaid.peek()) {
            // With an image root or a field that the user declared, there are images too.
            (image, Some(_)) if image.is_some() || has_root || !fields.is_empty() => {
                fields.extend(unsaid.map(|name| field(name, !has_root)));
            }
            (_, Some(name)) => {
                let help = FIELD.to_pair(name, "files");
                let what =
                    format!("the texts of `{name}` look like names of images, which are not read; {help} reads them");
                tracing::warn!(url = source.url(), "{what}");
            }
            (_, None) if fields.is_empty() && has_root => {
                let what = format!("{} is set, but no field looks like names of images", IMAGE_ROOT.word());
                let help = FIELD.to_pair("image", "files");
                let hint = format!("set the field whose texts name them: {help}");
                return Err(Error::config(what).at_object(source.url()).with_hint(hint));
            }
            (Some(first), None) if fields.is_empty() => {
                let (count, first) = (images.len(), &first.name);
                let what = format!("{count} images are not read, because no field names them; the first is `{first}`");
                tracing::warn!(url = source.url(), "{what}");
            }
            _ => {}
        }
        Ok(fields)
    }

    /// The dataset `table` with images instead of the texts of `fields`. The names are read from `table` as `format`
    /// opens it again, with these columns only.
    ///
    /// # Errors
    /// `NotFound` if a field, or the files of a field, are not there; `Corrupt` if a name may be that of two files;
    /// those of reading the table.
    pub(crate) async fn with_images(
        &self,
        format: &dyn Format,
        table: Arc<dyn Dataset>,
        mut fields: Vec<NameField>,
        options: &OpenOptions,
    ) -> Result<Arc<dyn Dataset>> {
        let are_there = fields.iter().try_for_each(|field| column_of(table.schema(), &field.name).map(drop));
        are_there.map_err(|e| e.at_object(self.tables.0.url()))?;
        let columns: Vec<String> = fields.iter().map(|field| field.name.clone()).collect();
        let names = match table.schema().fields.len() == columns.len() {
            true => Arc::clone(&table),
            false => {
                let options = OpenOptions { columns: Some(columns), said: Vec::new(), ..options.clone() };
                format.open(&self.tables.0, self.tables.1.clone(), &options).await?
            }
        };
        let found = self.numbers(&*names, &mut fields).await?;
        if fields.is_empty() {
            return Ok(table);
        }
        if found.records() != table.len() {
            let what = "the table changed while it was opened";
            return Err(Error::corrupt(what).at_object(self.tables.0.url()).with_hint("open it again"));
        }
        let images = (&self.images.0, &self.images.1[..]);
        Ok(Arc::new(NamedFiles::new((self.format, table), images, found, &fields, options).await?))
    }

    /// The files of all records. Fields that stay texts are taken out of `fields`.
    async fn numbers(&self, names: &dyn Dataset, fields: &mut Vec<NameField>) -> Result<FileNumbers> {
        let columns =
            fields.iter().map(|field| column_of(names.schema(), &field.name)).collect::<Result<Vec<usize>>>()?;
        let images: Vec<&str> = self.images.1.iter().map(|image| &*image.name).collect();
        let mut known = NamedImages(Names::new(&images, self.images.0.url()));
        let at = |e: Error, field: usize| {
            let keep = FIELD.to_pair(&fields[field].name, "text");
            e.with_hint(format!("name the files as the dataset does, or keep the texts: {keep}"))
        };
        let mut all = FileNumbers::new(fields.len());
        let mut counts = vec![Count::default(); fields.len()];
        // All names, as long as none of them is that of an image.
        let (mut unknown, mut is_one_known): (Vec<(usize, String)>, _) = (Vec::new(), false);
        let records: Vec<u64> = (0..names.len()).collect();
        look(names, &records, |record, sample| {
            let table = names.object(record);
            let folder = self.folder_of(&table);
            for (field, (column, count)) in columns.iter().zip(&mut counts).enumerate() {
                let texts = sample.values.get(*column).map(texts_of).unwrap_or_default();
                let file = |text: &[u8]| {
                    let text = String::from_utf8_lossy(text);
                    let file = known.of(folder, &text);
                    let file = file.map_err(|e| at(e, field).at_object(table.clone()).at_record(record))?;
                    count.add(file, &text);
                    is_one_known |= file.is_some();
                    if is_one_known {
                        unknown = Vec::new();
                    } else {
                        unknown.push((field, text.into_owned()));
                    }
                    Ok(file.unwrap_or(MISSING))
                };
                all.push(texts.into_iter().map(file).collect::<Result<Vec<u32>>>()?)?;
            }
            Ok(())
        })
        .await?;
        if !unknown.is_empty() {
            let texts: Vec<&str> = unknown.iter().map(|(_, text)| text.as_str()).collect();
            let found = known.by_ends(&texts).map_err(|e| at(e, unknown[0].0).at_object(self.images.0.url()))?;
            counts.fill(Count::default());
            unknown.iter().zip(&found).for_each(|((field, text), file)| counts[*field].add(*file, text));
            all.replace(found.into_iter().map(|file| file.unwrap_or(MISSING)).collect());
        }
        let mut keep = Vec::with_capacity(fields.len());
        for (field, Count { found, missing, first }) in fields.iter().zip(counts) {
            let (name, of) = (&field.name, found + missing);
            keep.push(found > 0 || !field.if_there);
            if missing == 0 && found > 0 {
                continue;
            }
            let image = images.first().copied().unwrap_or("none");
            if found > 0 {
                tracing::warn!(
                    url = self.images.0.url(),
                    "{missing} of {of} names in `{name}` are those of no file, the first is `{first}`: these records are bad samples"
                );
            } else if field.if_there {
                tracing::warn!(
                    url = self.images.0.url(),
                    "the texts of `{name}` look like names of images but there are no such files: the first is `{first}`, the first image is `{image}`"
                );
            } else {
                let what = match of {
                    0 => format!("the field `{name}` names no files: all its texts are empty"),
                    _ => format!(
                        "no text of `{name}` names an image: the first is `{first}`, the first image is `{image}`"
                    ),
                };
                let hint = format!(
                    "names are relative to the folder of the table or to the place that is opened{}; to keep the texts, set {}",
                    IMAGE_ROOT.or_set("PLACE"),
                    FIELD.to_pair(name, "text")
                );
                return Err(Error::new(ErrorKind::NotFound, what).at_object(self.images.0.url()).with_hint(hint));
            }
        }
        let mut kept = keep.iter();
        fields.retain(|_| kept.next().is_some_and(|keep| *keep));
        Ok(all.only(&keep))
    }

    /// The folder of an object, relative to the place, from its name in messages.
    fn folder_of<'a>(&self, object: &'a str) -> &'a str {
        let object = object.strip_prefix(self.images.0.url()).unwrap_or_default();
        parent(object.trim_start_matches('/'))
    }
}

/// The names of one field that were found or not.
#[derive(Clone, Debug, Default)]
struct Count {
    found: usize,
    missing: usize,
    /// The first that was not found.
    first: String,
}

impl Count {
    fn add(&mut self, file: Option<u32>, name: &str) {
        match file {
            Some(_) => self.found += 1,
            None if self.missing == 0 => (self.missing, self.first) = (1, name.to_owned()),
            None => self.missing += 1,
        }
    }
}
