//! Indexes of versions 2 and 3, which are read as a whole.
//!
//! ```text
//! "infeed shards 3\n"
//! u64 bytes of the body, u128 xxh3 of the body                                  little-endian
//! body: classes: varint count, texts (varint length, UTF-8), 0 for none
//!       varint shards, each:
//!         text name (relative to this file), varint size, text etag (empty: none), u128 job (0: none),
//!         varint shards of the job, u128 sources (when there is one; not in version 2)
//!         u8 1 when members have a crc32c, else 0
//!         varint extensions, texts
//!         varint samples, each:
//!           varint bytes shared with the key before, text the rest of the key
//!           varint members, each: varint extension, varint blocks of 512 bytes from the end of the member before
//!                                 to this one's content, varint size, u32 crc32c if there are any
//! ```

use infeed_store::{Rest, body};

use crate::tar::{
    header::{BLOCK, padded},
    samples::Member,
    shard::Shard,
};

const VERSION_3: &[u8] = b"infeed shards 3\n";
/// Does not have the sources of shards.
const VERSION_2: &[u8] = b"infeed shards 2\n";

/// Whether a file with this beginning has one of these versions.
pub(super) fn is_old(start: &[u8]) -> bool {
    [VERSION_3, VERSION_2].contains(&start)
}

/// Classes and shards, or words for a warning.
pub(super) fn parse(bytes: &[u8]) -> Result<(Vec<String>, Vec<Shard>), String> {
    let has_sources = !bytes.starts_with(VERSION_2);
    let body = body(if has_sources { VERSION_3 } else { VERSION_2 }, bytes)?;
    parse_body(body, has_sources).ok_or_else(|| "its content is invalid".into())
}

fn parse_body(body: &[u8], has_sources: bool) -> Option<(Vec<String>, Vec<Shard>)> {
    let mut rest = Rest::of(body);
    let classes = rest.list(1, |rest| rest.text().map(str::to_owned))?;
    let shards = rest.list(22, |rest| shard(rest, has_sources))?;
    rest.is_empty().then_some((classes, shards))
}

fn shard(rest: &mut Rest<'_>, has_sources: bool) -> Option<Shard> {
    let mut shard = Shard { name: rest.text()?.into(), size: rest.number()?, ..Shard::default() };
    shard.etag = Some(rest.text()?).filter(|etag| !etag.is_empty()).map(Into::into);
    shard.job = u128::from_le_bytes(rest.take(16)?.try_into().ok()?);
    if shard.job != 0 {
        shard.job_shards = u32::try_from(rest.number()?).ok()?;
        if has_sources {
            shard.sources = u128::from_le_bytes(rest.take(16)?.try_into().ok()?);
        }
    }
    shard.has_crc = match rest.take(1)? {
        [0] => false,
        [1] => true,
        _ => return None,
    };
    shard.extensions = rest.list(1, |rest| rest.text().map(str::to_owned))?;
    // Bounds the expanded size: keys share bytes with earlier keys, but a file can't claim arbitrary amounts.
    let mut room = rest.len().saturating_mul(64);
    let mut end = 0;
    for _ in 0..rest.count(3)? {
        let shared = usize::try_from(rest.number()?).ok()?;
        let more = rest.text()?;
        room = room.checked_sub(shared)?.checked_sub(more.len())?;
        shard.samples.begin(shared, more)?;
        for _ in 0..rest.count(3)? {
            let extension = u16::try_from(rest.number()?).ok()?;
            shard.extensions.get(usize::from(extension))?;
            // A header is before it.
            let block = u32::try_from(rest.number()?.checked_add(end)?).ok().filter(|block| *block > 0)?;
            let size = u32::try_from(rest.number()?).ok()?;
            let crc = match shard.has_crc {
                true => u32::from_le_bytes(rest.take(4)?.try_into().ok()?),
                false => 0,
            };
            let member = Member { extension, block, size, crc };
            if member.end() > shard.size {
                return None;
            }
            end = padded(member.end()) / BLOCK;
            shard.samples.add(member)?;
        }
    }
    Some(shard)
}

#[cfg(test)]
pub(super) mod tests {
    use infeed_store::{number, seal, text, unsealed};
    use proptest::prelude::*;

    use super::*;
    use crate::tar::index::Index;
    use crate::tar::index::tests::{shard, wide};

    /// As version 3 was written.
    pub(in crate::tar) fn encode(index: &Index) -> Vec<u8> {
        let mut out = unsealed(VERSION_3, 0);
        number(&mut out, index.classes.len() as u64);
        index.classes.iter().for_each(|class| text(&mut out, class));
        number(&mut out, index.shards.len() as u64);
        for shard in &index.shards {
            text(&mut out, &shard.name);
            number(&mut out, shard.size);
            text(&mut out, shard.etag.as_deref().unwrap_or_default());
            out.extend_from_slice(&shard.job.to_le_bytes());
            if shard.job != 0 {
                number(&mut out, shard.job_shards.into());
                out.extend_from_slice(&shard.sources.to_le_bytes());
            }
            out.push(shard.has_crc.into());
            number(&mut out, shard.extensions.len() as u64);
            shard.extensions.iter().for_each(|extension| text(&mut out, extension));
            number(&mut out, shard.len() as u64);
            let mut before = "";
            let mut end = 0;
            for (key, members) in shard.samples.iter() {
                let mut shared = key.bytes().zip(before.bytes()).take_while(|(a, b)| a == b).count();
                while !key.is_char_boundary(shared) {
                    shared -= 1;
                }
                number(&mut out, shared as u64);
                text(&mut out, &key[shared..]);
                before = key;
                number(&mut out, members.len() as u64);
                for member in members {
                    number(&mut out, member.extension.into());
                    number(&mut out, u64::from(member.block) - end);
                    number(&mut out, member.size.into());
                    if shard.has_crc {
                        out.extend_from_slice(&member.crc.to_le_bytes());
                    }
                    end = padded(member.end()) / BLOCK;
                }
            }
        }
        seal(VERSION_3, out)
    }

    /// Versions before had none.
    fn without_labels(mut index: Index) -> Index {
        index.shards.iter_mut().for_each(|shard| shard.labels.clear());
        index
    }

    fn some() -> Index {
        let classes = vec!["a".into(), "b".into()];
        without_labels(Index { classes, shards: vec![shard(50, true), shard(9, false), wide(40)] })
    }

    #[test]
    fn indexes_of_versions_before_are_read() {
        let index = some();
        assert_eq!(Index::parse(&encode(&index)).unwrap(), index);
        let mut index = Index { classes: vec![], shards: vec![shard(9, false)] };
        let mut file = encode(&index);
        // Behind counts, name, size, tag, job and its shards.
        let head = VERSION_3.len() + 8 + 16;
        let at = head + 2 + 8 + 5 + 1 + 16 + 2;
        assert_eq!(file.drain(at..at + 16).collect::<Vec<u8>>(), 11_u128.to_le_bytes());
        file[..VERSION_2.len()].copy_from_slice(VERSION_2);
        index.shards[0].sources = 0;
        assert_eq!(Index::parse(&seal(VERSION_2, file)).unwrap(), without_labels(index));
    }

    #[test]
    fn damage_is_found_wherever_it_is() {
        let bytes = encode(&Index { classes: vec!["a".into()], shards: vec![shard(9, true)] });
        for at in 0..bytes.len() {
            assert!(Index::parse(&bytes[..at]).is_err(), "cut at {at}");
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            assert!(Index::parse(&other).is_err(), "byte {at}");
        }
    }

    proptest! {
        /// With a checksum that is right, as somebody's own writer would make it.
        #[test]
        fn any_body_gives_an_index_or_nothing(at in 0usize..300, flip in any::<u8>(), cut in 0usize..2000) {
            let index = Index { classes: vec![], shards: vec![shard(12, true)] };
            let mut body = encode(&index).split_off(VERSION_3.len() + 8 + 16);
            let at = at.min(body.len() - 1);
            body[at] ^= flip;
            body.truncate(body.len().saturating_sub(cut % 40));
            let _ = parse_body(&body, true);
            let _ = parse_body(&body, false);
        }
    }
}
