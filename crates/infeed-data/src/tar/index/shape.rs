//! The extensions that samples have.

use std::collections::HashMap;

use infeed_store::{Rest, number, text};
use smallvec::SmallVec;

use crate::tar::samples::Samples;

/// The extensions of a sample's members, in the order of the tar.
type Layout = SmallVec<[u16; 4]>;

/// Extensions and layouts that shards share; most datasets have one or two shapes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::tar) struct Shape {
    pub(in crate::tar) has_crc: bool,
    pub(in crate::tar) extensions: Vec<String>,
    /// The layout of each kind of samples.
    pub(in crate::tar) layouts: Vec<Layout>,
}

impl Shape {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.has_crc.into());
        number(out, self.extensions.len() as u64);
        self.extensions.iter().for_each(|extension| text(out, extension));
        number(out, self.layouts.len() as u64);
        for layout in &self.layouts {
            number(out, layout.len() as u64);
            layout.iter().for_each(|extension| number(out, (*extension).into()));
        }
    }

    pub(super) fn parse(rest: &mut Rest<'_>) -> Option<Self> {
        let has_crc = match rest.take(1)? {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        let extensions = rest.list(1, |rest| rest.text().map(str::to_owned))?;
        let known = |extension: u64| u16::try_from(extension).ok().filter(|at| usize::from(*at) < extensions.len());
        let layout = |rest: &mut Rest<'_>| rest.list(1, |rest| rest.number().and_then(known)).map(SmallVec::from_vec);
        let layouts = rest.list(1, layout)?;
        Some(Self { has_crc, extensions, layouts })
    }
}

/// The distinct layouts of a shard's samples, and the index of each sample's layout.
pub(super) fn layouts(samples: &Samples) -> (Vec<Layout>, Vec<u32>) {
    let mut kinds: Vec<Layout> = Vec::new();
    let mut known = HashMap::new();
    let mut of: Vec<u32> = Vec::with_capacity(samples.len());
    for (_, members) in samples.iter() {
        let extensions = || members.iter().map(|member| member.extension);
        let same = |kind: &u32| kinds[*kind as usize].iter().copied().eq(extensions());
        let kind = of.last().copied().filter(same).unwrap_or_else(|| {
            let kind: Layout = extensions().collect();
            *known.entry(kind).or_insert_with_key(|kind| {
                kinds.push(kind.clone());
                kinds.len() as u32 - 1
            })
        });
        of.push(kind);
    }
    (kinds, of)
}
