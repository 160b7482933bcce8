//! Finds all datasets of a file and reads their headers.

use std::collections::HashSet;

use infeed_core::{
    error::{Error, Result},
    types::DType,
};

use super::{
    attributes,
    chunks::{self, Chunk, Grid},
    damaged,
    file::File,
    group,
    header::{Header, kind},
    messages::{self, Layout, Space, Step},
};

use crate::chunked::{Attributes, Unpacking};

/// The deepest nesting of groups.
const DEEPEST: usize = 64;
/// Bytes read ahead of each header: most headers are shorter.
const HEAD: u64 = 512;

/// A dataset: its path without the leading `/`, and its description or the reason why it is not read.
#[derive(Debug)]
pub(super) struct FoundDataset {
    pub(super) name: String,
    pub(super) stored: std::result::Result<Stored, String>,
}

/// A dataset of numbers. Its shape is empty for a single number.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) dtype: DType,
    pub(super) unpacking: Option<Unpacking>,
    pub(super) big_endian: bool,
    pub(super) shape: Vec<u64>,
    /// The fill value: one element in the file's byte order.
    pub(super) fill: Vec<u8>,
    /// The filters in the order in which they were applied.
    pub(super) steps: Vec<Step>,
    space: Space,
    layout: Layout,
}

/// The datasets in the order of their names.
pub(super) async fn datasets(file: &mut File<'_>) -> Result<Vec<FoundDataset>> {
    let mut found = Vec::new();
    let mut level = vec![(String::new(), file.root)];
    let mut groups = HashSet::new();
    let mut objects = 0;
    for _ in 0..DEEPEST {
        let heads: Vec<_> = level.iter().map(|(_, at)| (*at, HEAD.min(file.left(*at)))).collect();
        file.need(&heads).await?;
        let mut below = Vec::new();
        for (name, at) in level {
            let here = file.near(&name);
            let near = |e: Error| e.at_object(here.clone());
            let header = Header::read(file, at).await.map_err(near)?;
            if group::is_group(&header) {
                // A group that was already visited is skipped: a group may link to one above it.
                if groups.insert(at) {
                    let links = group::links(file, &header).await.map_err(near)?;
                    objects += links.len();
                    group::most(objects)?;
                    let join = |link: String| if name.is_empty() { link } else { format!("{name}/{link}") };
                    below.extend(links.into_iter().map(|(link, at)| (join(link), at)));
                }
            } else if header.has(kind::LAYOUT) {
                let known = attributes::known(file, &header, &name).await.map_err(near)?;
                if !known.is_dimension {
                    let stored = stored(file, &header, known.attributes).await.map_err(near)?;
                    found.push(FoundDataset { name, stored });
                }
            }
        }
        level = below;
        if level.is_empty() {
            found.sort_by(|a, b| a.name.cmp(&b.name));
            return Ok(found);
        }
    }
    Err(damaged(format!("more than {DEEPEST} nested groups")))
}

async fn stored(
    file: &mut File<'_>,
    header: &Header,
    attributes: Attributes,
) -> Result<std::result::Result<Stored, String>> {
    let missing = |what: &str| damaged(format!("a dataset without {what}"));
    let of_type = header.follow(file, kind::TYPE).await?.ok_or_else(|| missing("a type"))?;
    let space = header.follow(file, kind::SPACE).await?.ok_or_else(|| missing("a shape"))?;
    let layout = header.find(kind::LAYOUT).ok_or_else(|| missing("a layout"))?;
    let (dtype, big_endian) = match messages::datatype(&of_type.body)? {
        Ok(number) => number,
        Err(why) => return Ok(Err(why)),
    };
    let Some(space) = messages::space(&space.body, file.lengths)? else {
        return Ok(Err("empty".into()));
    };
    let layout = messages::layout(layout, file.offsets, file.lengths)?;
    if layout == Layout::Virtual {
        return Ok(Err("virtual, composed of other datasets".into()));
    }
    if header.has(kind::EXTERNAL) {
        return Ok(Err("stored in other files".into()));
    }
    let fill = match header.follow(file, kind::FILL).await? {
        Some(fill) => messages::fill(&fill.body, false)?,
        None => match header.follow(file, kind::OLD_FILL).await? {
            Some(fill) => messages::fill(&fill.body, true)?,
            None => Vec::new(),
        },
    };
    let fill = match fill.len() {
        0 => vec![0; dtype.size()],
        len if len == dtype.size() => fill,
        len => return Err(damaged(format!("a fill value of {len} bytes for elements of {}", dtype.size()))),
    };
    let steps = match header.follow(file, kind::FILTERS).await? {
        Some(filters) if matches!(layout, Layout::Chunks { .. }) => messages::filters(&filters.body)?,
        _ => Vec::new(),
    };
    let shape = space.shape.clone();
    let (dtype, unpacking) = attributes.of(dtype);
    Ok(Ok(Stored { dtype, unpacking, big_endian, shape, fill, steps, space, layout }))
}

impl Stored {
    /// Shape of a chunk, and the chunks that exist, with their offsets in the object.
    pub(super) async fn places(&self, file: &mut File<'_>) -> Result<(Vec<u64>, Vec<Chunk>)> {
        let beyond = || damaged(format!("a dataset of shape {:?}", self.shape));
        let bytes = |shape: &[u64]| shape.iter().try_fold(self.dtype.size() as u64, |bytes, n| bytes.checked_mul(*n));
        match &self.layout {
            Layout::Piece { at, len } => {
                let all = bytes(&self.shape).ok_or_else(beyond)?;
                let chunk = self.shape.iter().map(|n| (*n).max(1)).collect();
                let Some(at) = at.filter(|_| all > 0) else { return Ok((chunk, Vec::new())) };
                if *len < all {
                    return Err(damaged(format!("{len} bytes for a dataset of {all}")));
                }
                let at = file.place(at, all)?;
                Ok((chunk, vec![Chunk { number: 0, at, len: all, mask: 0 }]))
            }
            Layout::Chunks { shape: chunk, index, at, plain_edges } => {
                if chunk.len() != self.shape.len() {
                    return Err(damaged(format!("chunks of {chunk:?} for a dataset of {:?}", self.shape)));
                }
                let bytes = bytes(chunk).ok_or_else(beyond)?;
                let grid = Grid::new(&self.space, chunk, bytes);
                let mut chunks = chunks::chunks(file, *index, *at, &grid).await?;
                for chunk in &mut chunks {
                    chunk.at = file.place(chunk.at, chunk.len)?;
                    if *plain_edges && grid.is_cut(chunk.number) {
                        chunk.mask = u32::MAX;
                    }
                }
                Ok((chunk.clone(), chunks))
            }
            Layout::Virtual => Err(beyond()),
        }
    }
}
