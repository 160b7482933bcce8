//! Maps members of samples to fields, by their extensions.

use std::collections::{BTreeMap, BTreeSet};

use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{COLUMNS, FIELD},
    },
    types::DType,
};
use infeed_store::{Object, Source};

use smallvec::SmallVec;

use super::{
    header::BLOCK,
    index::Entry,
    samples::{Member, Samples},
};
use crate::arrays;
use crate::{
    format::OpenOptions,
    names::{self, looks_like_mask},
    schema::{Field, FieldKind},
    sniff::depth_of,
};

/// The kind of the members with an extension.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum MemberField {
    Image,
    /// `image.npy`: pixels, rows first, channels last.
    Pixels,
    Label,
    Numbers,
    Text,
    Bytes,
    /// Read only if the user names it.
    Unknown,
}

impl MemberField {
    const fn in_words(&self) -> &'static str {
        match self {
            Self::Image => "an image file",
            Self::Pixels | Self::Numbers => "an array of numbers",
            Self::Label => "a label",
            Self::Text => "a text",
            Self::Bytes | Self::Unknown => "bytes",
        }
    }
}

/// The fields that members belong to. If a sample has two images of one name (`7.jpg` and `7.png`), their extensions
/// are the names of the fields.
#[derive(Debug)]
pub(super) struct FieldNames {
    /// Names that two extensions of a sample share.
    twice: BTreeSet<String>,
}

impl FieldNames {
    pub(super) fn of(shards: &[Entry]) -> Self {
        let mut twice = BTreeSet::new();
        for shard in shards {
            for (layout, samples) in shard.shape.layouts.iter().zip(&shard.layouts) {
                let used: BTreeSet<u16> = layout.iter().copied().filter(|_| *samples > 0).collect();
                let mut seen = BTreeSet::new();
                for at in used {
                    let (name, kind) = field_of(&shard.shape.extensions[usize::from(at)]);
                    if kind == MemberField::Image && !seen.insert(name.clone()) {
                        twice.insert(name);
                    }
                }
            }
        }
        Self { twice }
    }

    /// Field and kind of an extension.
    pub(super) fn field(&self, extension: &str) -> (String, MemberField) {
        let (name, kind) = field_of(extension);
        let own = kind == MemberField::Image && self.twice.contains(&name);
        (if own { extension.to_owned() } else { name }, kind)
    }
}

/// Field and kind of an extension by itself.
fn field_of(extension: &str) -> (String, MemberField) {
    let (stem, last) = extension.rsplit_once('.').map_or((None, extension), |(stem, last)| (Some(stem), last));
    let named = |default: &str| stem.unwrap_or(default).to_owned();
    match last {
        _ if names::EXTENSIONS.iter().any(|known| known[1..] == *last) => (named("image"), MemberField::Image),
        "cls" => (named("label"), MemberField::Label),
        "npy" if stem == Some("image") => (named("image"), MemberField::Pixels),
        "npy" => (named("npy"), MemberField::Numbers),
        "json" | "txt" => (named(last), MemberField::Text),
        // As `prepare` writes them.
        "bytes" => (named(last), MemberField::Bytes),
        _ => (extension.to_owned(), MemberField::Unknown),
    }
}

/// A field, and how it is read.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: MemberField,
    /// Type and shape of the first sample's numbers; for a mask, the type of its labels.
    pub(super) array: Option<(DType, Vec<usize>)>,
    /// Whether samples have different numbers of them.
    pub(super) is_list: bool,
    /// Bytes of the longest member.
    pub(super) most: u32,
}

impl Column {
    /// Whether a member of the shard is in the column.
    fn has(&self, names: &FieldNames, shard: &Entry, member: &Member) -> bool {
        names.field(&shard.shape.extensions[usize::from(member.extension)]).0 == self.name
    }

    pub(super) fn field(&self, options: &OpenOptions) -> Field {
        let kind = match (&self.kind, &self.array) {
            (MemberField::Image, labels) => {
                return options.picture(&self.name, labels.as_ref().map(|(dtype, _)| *dtype));
            }
            (MemberField::Pixels, _) => FieldKind::Image { channels: 3, size: None, dtype: None },
            (MemberField::Label, _) => FieldKind::Label,
            (MemberField::Numbers, Some((dtype, shape))) if self.is_list => {
                let item = shape.get(1..).unwrap_or_default().to_vec();
                let most = self.most as usize / dtype.len_bytes(&item).unwrap_or(1).max(1);
                FieldKind::List { dtype: *dtype, item, most }
            }
            (MemberField::Numbers, Some((dtype, shape))) => FieldKind::Array { dtype: *dtype, shape: shape.clone() },
            (MemberField::Text, _) => FieldKind::Text { most: self.most as usize },
            (MemberField::Numbers | MemberField::Bytes | MemberField::Unknown, _) => {
                FieldKind::Bytes { most: self.most as usize }
            }
        };
        Field::new(self.name.clone(), kind)
    }
}

/// The fields: those that every sample has, or those that the user named.
pub(super) fn columns_of(
    source: &Source,
    shards: &[Entry],
    fields: &FieldNames,
    options: &OpenOptions,
) -> Result<Vec<Column>> {
    let mut found: BTreeMap<String, (MemberField, u64, u32)> = BTreeMap::new();
    for shard in shards {
        let mut counts = vec![0u64; shard.shape.extensions.len()];
        for (layout, samples) in shard.shape.layouts.iter().zip(&shard.layouts) {
            layout.iter().for_each(|extension| counts[usize::from(*extension)] += u64::from(*samples));
        }
        let kinds = shard.shape.extensions.iter().map(|extension| fields.field(extension));
        for (((name, kind), count), most) in kinds.zip(counts).zip(&shard.most) {
            let entry = found.entry(name.clone()).or_insert((kind.clone(), 0, 0));
            if entry.0 != kind {
                let what =
                    format!("`{name}` is {} in some members and {} in others", entry.0.in_words(), kind.in_words());
                return Err(Error::new(ErrorKind::Unsupported, what)
                    .at_object(source.display_name(&shard.name))
                    .with_hint("a sample's key ends at the first dot of a name, as in webdataset: write names with one dot, or give the fields names of their own"));
            }
            (entry.1, entry.2) = (entry.1 + count, entry.2.max(*most));
        }
    }
    let names = found.keys().map(String::as_str).chain(["key"]).collect::<Vec<_>>().join(", ");
    if let Some(chosen) = &options.columns {
        if let Some(unknown) = chosen.iter().find(|name| !found.contains_key(*name) && *name != "key") {
            return Err(Error::new(ErrorKind::NotFound, format!("no member is a field `{unknown}`"))
                .at_object(source.url())
                .with_hint(format!("there are {names}")));
        }
        found.retain(|name, _| chosen.contains(name));
    } else {
        let unknown: Vec<_> =
            found.iter().filter(|(_, (kind, ..))| *kind == MemberField::Unknown).map(|(n, _)| n.clone()).collect();
        if !unknown.is_empty() && unknown.len() < found.len() {
            let extensions = unknown.join(", ");
            // Without a warning, nobody would notice that a run lacks its images.
            tracing::warn!(extensions, "members are left out; {COLUMNS} can add them as bytes");
            found.retain(|_, (kind, ..)| *kind != MemberField::Unknown);
        }
    }
    let count: u64 = shards.iter().map(|shard| u64::from(shard.len())).sum();
    if let Some((name, (_, have, _))) = found.iter().find(|(_, (_, have, _))| *have < count) {
        let lacks = |shard: &Entry| -> Result<Option<String>> {
            let has = |layout: &[u16]| {
                layout.iter().any(|at| fields.field(&shard.shape.extensions[usize::from(*at)]).0 == *name)
            };
            if shard.shape.layouts.iter().zip(&shard.layouts).all(|(layout, count)| *count == 0 || has(layout)) {
                return Ok(None);
            }
            for block in shard.blob.blocks(&shard.shape) {
                let block = block?;
                let lacking = block.iter().find(|(_, members)| {
                    !has(&members.iter().map(|member| member.extension).collect::<SmallVec<[u16; 4]>>())
                });
                if let Some((key, _)) = lacking {
                    return Ok(Some(key.to_owned()));
                }
            }
            Ok(None)
        };
        let what = format!("{} of {count} samples have no `{name}`", count - have);
        let mut error = Error::corrupt(what.clone()).at_object(source.url());
        for shard in shards {
            if let Some(key) = lacks(shard)? {
                error = Error::corrupt(format!("{what}, the first is key `{key}`"))
                    .at_object(source.display_name(&shard.name));
                break;
            }
        }
        return Err(error.with_hint(format!("use {COLUMNS} to choose fields that all samples have, among {names}")));
    }
    let column = |(name, (kind, _, most)): (String, (MemberField, u64, u32))| Column {
        is_list: options.is_list(&name),
        name,
        kind,
        array: None,
        most,
    };
    let mut columns: Vec<Column> = found.into_iter().map(column).collect();
    // Images first, then labels, as in all formats.
    columns.sort_by_key(|column| match column.kind {
        // Masks come after the images whose draws they use.
        MemberField::Image if options.is_mask(&column.name) => (1, false),
        MemberField::Image | MemberField::Pixels => (0, column.name != "image"),
        MemberField::Label => (2, column.name == "label"),
        _ => (3, false),
    });
    if columns.len() > 64 {
        return Err(Error::new(ErrorKind::Unsupported, format!("{} fields", columns.len()))
            .at_object(source.url())
            .with_hint(format!("use {COLUMNS} to choose those that you need")));
    }
    Ok(columns)
}

/// The first samples of a shard, its object, and the first sample's member of the column.
fn first_of(shard: &Entry, names: &FieldNames, column: &Column) -> Result<(Samples, Object, Member)> {
    let block = shard.blob.block(0, &shard.shape)?;
    let Some(member) = block.members(0).iter().find(|member| column.has(names, shard, member)).copied() else {
        return Err(Error::corrupt(format!("the first sample has no `{}`", column.name)));
    };
    let mut object = Object::new(&*shard.name, shard.size);
    object.etag = shard.etag.as_deref().map(Into::into);
    Ok((block, object, member))
}

/// Completes a column of masks by the first sample, if its file can be read: the type of its labels.
pub(super) async fn look_at_labels(
    source: &Source,
    shards: &[Entry],
    names: &FieldNames,
    column: &mut Column,
) -> Result<()> {
    let (_, object, member) = first_of(&shards[0], names, column)?;
    let mut extent = object.extent(source);
    extent.range = member.start()..member.end();
    let file = extent.read().await.ok();
    column.array = Some((depth_of(file.as_deref()), Vec::new()));
    Ok(())
}

/// Completes a column of numbers by the first sample: all samples have to have its type and shape. If members differ in
/// size, the column is a list, and only the first axis may differ. The sizes of a block of samples and the largest of all
/// are in the index; a list of which these are equal has to be declared. `is_said`: whether the user set the kind.
pub(super) async fn look_at_numbers(
    source: &Source,
    shards: &[Entry],
    names: &FieldNames,
    column: &mut Column,
    is_said: bool,
) -> Result<()> {
    let shard = &shards[0];
    let (block, object, member) = first_of(shard, names, column)?;
    let mut own = block.all_members().iter().filter(|member| column.has(names, shard, member));
    let differ = u64::from(column.most) != u64::from(member.size) || !own.all(|other| other.size == member.size);
    let array = arrays::npy_at(source, &object, member.start(), member.end()).await;
    let array = array
        .map_err(|e| e.at_object(source.display_name(&shard.name)).at_range(member.start() - BLOCK..member.end()))?;
    let is_list = column.is_list || (differ && arrays::is_usual_list(array.dtype, &array.shape));
    let fixed = if is_list { array.shape.get(1..).unwrap_or_default() } else { &array.shape };
    if fixed.contains(&0) {
        return Err(Error::corrupt(format!("`{}` has the shape {:?}", column.name, array.shape)));
    }
    column.is_list = is_list && !array.shape.is_empty();
    if looks_like_mask(&column.name) && array.shape.len() == 2 && !is_said {
        let (url, field) = (source.url(), &column.name);
        let help = FIELD.to_pair(field, "mask");
        tracing::warn!(
            url,
            field,
            "an array that is named like a mask does not move with its image; {help} makes it a mask"
        );
    }
    column.array = Some((array.dtype, array.shape));
    Ok(())
}
