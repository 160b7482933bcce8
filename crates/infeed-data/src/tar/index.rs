//! The file that keeps what is known of shards.
//!
//! ```text
//! "infeed shards 3\n"
//! u64 bytes of the body, u128 xxh3 of the body                                  little-endian
//! body: classes: varint count, texts (varint length, UTF-8), 0 for none
//!       varint shards, each:
//!         text name (relative to this file), varint size, text etag (empty: none), u128 job (0: none),
//!         varint shards of the job, u128 sources (when there is one)
//!         u8 1 when members have a crc32c, else 0
//!         varint extensions, texts
//!         varint samples, each:
//!           varint bytes shared with the key before, text the rest of the key
//!           varint members, each: varint extension, varint blocks of 512 bytes from the end of the member before
//!                                 to this one's content, varint size, u32 crc32c if there are any
//! ```
//!
//! `shards.infeed` tells all shards of a folder, `NAME.infeed` beside `NAME.tar` one. A shard of another size, or with
//! another ETag, is not the one that was told: it is indexed again. Files of version 2, which have no sources, are read.

use infeed_store::{Object, Rest, body, number, seal, text, unsealed};

use super::{
    header::{BLOCK, padded},
    shard::{Member, Shard},
};

/// The index of a folder.
pub const INDEX: &str = "shards.infeed";
/// What ends the names of indexes, of a folder or of one shard.
pub(super) const ENDING: &str = ".infeed";

const MAGIC: &[u8] = b"infeed shards 3\n";
/// Without the sources of shards.
const BEFORE: &[u8] = b"infeed shards 2\n";

/// What an index tells: of all shards of a folder, or of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    #[doc(hidden)]
    pub classes: Vec<String>,
    #[doc(hidden)]
    pub shards: Vec<Shard>,
}

impl Index {
    #[doc(hidden)]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = unsealed(MAGIC, 0);
        number(&mut out, self.classes.len() as u64);
        self.classes.iter().for_each(|class| text(&mut out, class));
        number(&mut out, self.shards.len() as u64);
        self.shards.iter().for_each(|shard| shard.encode(&mut out));
        seal(MAGIC, out)
    }

    /// Any bytes give an index, or words for a warning.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let has_sources = !bytes.starts_with(BEFORE);
        let body = body(if has_sources { MAGIC } else { BEFORE }, bytes)?;
        Self::parse_body(body, has_sources).ok_or_else(|| "it makes no sense".into())
    }

    fn parse_body(body: &[u8], has_sources: bool) -> Option<Self> {
        let mut rest = Rest::of(body);
        let classes = rest.list(1, |rest| rest.text().map(str::to_owned))?;
        let shards = rest.list(22, |rest| Shard::parse(rest, has_sources))?;
        rest.is_empty().then_some(Self { classes, shards })
    }
}

impl Shard {
    fn encode(&self, out: &mut Vec<u8>) {
        text(out, &self.name);
        number(out, self.size);
        text(out, self.etag.as_deref().unwrap_or_default());
        out.extend_from_slice(&self.job.to_le_bytes());
        if self.job != 0 {
            number(out, self.job_shards.into());
            out.extend_from_slice(&self.sources.to_le_bytes());
        }
        out.push(self.has_crc.into());
        number(out, self.extensions.len() as u64);
        self.extensions.iter().for_each(|extension| text(out, extension));
        number(out, self.len() as u64);
        let mut before = "";
        let mut end = 0;
        for i in 0..self.len() {
            let key = self.key(i);
            let mut shared = key.bytes().zip(before.bytes()).take_while(|(a, b)| a == b).count();
            while !key.is_char_boundary(shared) {
                shared -= 1;
            }
            number(out, shared as u64);
            text(out, &key[shared..]);
            before = key;
            number(out, self.members(i).len() as u64);
            for member in self.members(i) {
                number(out, member.extension.into());
                number(out, u64::from(member.block) - end);
                number(out, member.size.into());
                if self.has_crc {
                    out.extend_from_slice(&member.crc.to_le_bytes());
                }
                end = padded(member.end()) / BLOCK;
            }
        }
    }

    fn parse(rest: &mut Rest<'_>, has_sources: bool) -> Option<Self> {
        let mut shard = Self { name: rest.text()?.into(), size: rest.number()?, ..Self::default() };
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
        // Keys share much with those before them, but not everything with everything.
        let longest = rest.len().saturating_mul(64);
        let samples = rest.count(3)?;
        shard.key_ends.reserve_exact(samples);
        shard.member_ends.reserve_exact(samples);
        let mut end = 0;
        let mut before = 0;
        for _ in 0..samples {
            let shared = usize::try_from(rest.number()?).ok().filter(|n| *n <= shard.keys.len() - before)?;
            let start = shard.keys.len();
            if !shard.keys.is_char_boundary(before + shared) {
                return None;
            }
            shard.keys.extend_from_within(before..before + shared);
            shard.keys.push_str(rest.text()?);
            before = start;
            if shard.keys.len() > longest {
                return None;
            }
            shard.key_ends.push(u32::try_from(shard.keys.len()).ok()?);
            for _ in 0..rest.count(3)? {
                let extension = u16::try_from(rest.number()?).ok()?;
                shard.extensions.get(usize::from(extension))?;
                // A header lies before it.
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
                shard.members.push(member);
            }
            shard.member_ends.push(u32::try_from(shard.members.len()).ok()?);
        }
        Some(shard)
    }
}

/// Reads an index of DALI's `wds2idx`: `v1.2 SAMPLES`, then a line for each with `EXTENSION OFFSET SIZE NAME` for each
/// member. The older v1.1 has no names.
///
/// # Errors
/// What is wrong with it, in words for a warning.
pub(super) fn parse_wds2idx(bytes: &[u8], object: &Object) -> Result<Shard, String> {
    let text = str::from_utf8(bytes).map_err(|_| "it is no text")?;
    let mut lines = text.lines();
    let (version, count) = lines.next().and_then(|line| line.split_once(' ')).unwrap_or_default();
    if version != "v1.2" {
        return Err("it is none of version v1.2".into());
    }
    let count: usize = count.trim().parse().map_err(|_| "it does not say how many samples there are")?;
    let mut shard = Shard::of(object);
    let mut end = 0;
    for (i, line) in lines.by_ref().take(count).enumerate() {
        let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        let members = words.as_chunks::<4>();
        if !members.1.is_empty() {
            return Err(format!("line {} has {} words, four belong to each member", i + 2, words.len()));
        }
        for [_, start, size, name] in members.0 {
            let (Ok(start), Ok(size)) = (start.parse::<u64>(), size.parse::<u64>()) else {
                return Err(format!("line {} has no offset or size", i + 2));
            };
            if start < BLOCK || start.checked_add(size).is_none_or(|end| end > object.size) {
                return Err(format!("line {} names bytes {start} and {size} more, beyond the tar's", i + 2));
            }
            // With a header between them; what is kept counts from one to the next.
            if start - BLOCK < end {
                return Err(format!("line {} names a member at {start}, before the end of another", i + 2));
            }
            end = padded(start + size);
            shard.add(name, start, size, None).map_err(|e| format!("line {}: {e}", i + 2))?;
        }
    }
    if shard.len() != count {
        return Err(format!("it tells {} of {count} samples", shard.len()));
    }
    shard.check_keys().map_err(|e| e.to_string())?;
    Ok(shard)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes before the body.
    const HEAD: usize = MAGIC.len() + 8 + 16;

    fn shard(samples: usize, crc: bool) -> Shard {
        let mut shard = Shard {
            etag: crc.then(|| "\"e\"".into()),
            job: 7,
            job_shards: 300,
            sources: 11,
            ..Shard::of(&Object::new("a/x.tar", 1 << 30))
        };
        let mut at = 512;
        for i in 0..samples {
            for (n, extension) in ["jpg", "cls", "seg.png"].iter().take(1 + i % 3).enumerate() {
                let size = (i * 977 + n * 13) as u64 % 3000;
                shard.add(&format!("ä{:05}/ö{i}.{extension}", i % 7), at, size, crc.then_some(i as u32 * 99)).unwrap();
                at += padded(size) + 512;
            }
        }
        shard
    }

    #[test]
    fn what_is_kept_is_read() {
        let index = Index { classes: vec!["a".into(), "b".into()], shards: vec![shard(50, true), shard(9, false)] };
        assert_eq!(Index::parse(&index.encode()).unwrap(), index);
        assert_eq!(Index::parse(&Index::default().encode()).unwrap(), Index::default());
        let one = &index.shards[0];
        assert_eq!((one.len(), one.key(8), one.members(8).len()), (50, "ä00001/ö8", 3));
        assert_eq!(one.extensions, ["jpg", "cls", "seg.png"]);
    }

    #[test]
    fn an_index_without_sources_is_read() {
        let mut index = Index { classes: vec![], shards: vec![shard(9, false)] };
        let mut file = index.encode();
        // Behind counts, name, size, tag, job and its shards.
        let at = HEAD + 2 + 8 + 5 + 1 + 16 + 2;
        assert_eq!(file.drain(at..at + 16).collect::<Vec<u8>>(), 11_u128.to_le_bytes());
        file[..BEFORE.len()].copy_from_slice(BEFORE);
        index.shards[0].sources = 0;
        assert_eq!(Index::parse(&seal(BEFORE, file)).unwrap(), index);
    }

    #[test]
    fn damage_is_found_wherever_it_is() {
        let bytes = Index { classes: vec!["a".into()], shards: vec![shard(9, true)] }.encode();
        for at in 0..bytes.len() {
            assert!(Index::parse(&bytes[..at]).is_err(), "cut at {at}");
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            assert!(Index::parse(&other).is_err(), "byte {at}");
        }
    }

    #[test]
    fn an_index_of_wds2idx_is_read() {
        let object = Object::new("x.tar", 100_000);
        let text = "v1.2 2\njpg 512 1000 000.jpg cls 2048 1 000.cls\njpg 3072 50000 001.jpg cls 54784 2 001.cls\n";
        let shard = parse_wds2idx(text.as_bytes(), &object).unwrap();
        assert_eq!((shard.len(), shard.key(1), shard.members(1)[1].start()), (2, "001", 54784));
        for (text, says) in [
            ("v1.1 1\njpg 512 1000\n", "version"),
            ("v1.2 x\n", "how many"),
            ("v1.2 2\njpg 512 1000 000.jpg\n", "1 of 2"),
            ("v1.2 1\njpg 512 1000\n", "line 2 has 3 words"),
            ("v1.2 1\njpg 512 -1 0.jpg\n", "no offset"),
            ("v1.2 1\njpg 512 99999999 0.jpg\n", "beyond"),
            ("v1.2 1\njpg 0 9 0.jpg\n", "beyond"),
            ("v1.2 1\njpg 512 9 0.jpg jpg 1536 9 0.jpg\n", "twice"),
            ("v1.2 1\njpg 1536 9 0.jpg cls 512 9 0.cls\n", "before the end"),
            ("v1.2 2\njpg 512 900 0.jpg\njpg 1024 9 1.jpg\n", "before the end"),
        ] {
            let error = parse_wds2idx(text.as_bytes(), &object).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        assert!(parse_wds2idx(b"\xff\xfe", &object).is_err());
    }

    proptest! {
        /// With a checksum that is right, as somebody's own writer would make it.
        #[test]
        fn any_body_gives_an_index_or_nothing(at in 0usize..300, flip in any::<u8>(), cut in 0usize..2000) {
            let mut body = Index { classes: vec![], shards: vec![shard(12, true)] }.encode().split_off(HEAD);
            let at = at.min(body.len() - 1);
            body[at] ^= flip;
            body.truncate(body.len().saturating_sub(cut % 40));
            let _ = Index::parse_body(&body, true);
            let _ = Index::parse_body(&body, false);
        }

        #[test]
        fn any_index_gives_a_shard_or_words(text in "(v1.2 [0-9]{1,3}\n)?([a-z]{3} [0-9]{0,5} [0-9]{0,4} [a-c]\\.[a-c]\n?){0,5}") {
            if let Ok(shard) = parse_wds2idx(text.as_bytes(), &Object::new("x.tar", 100_000)) {
                let index = Index { classes: vec![], shards: vec![shard] };
                prop_assert_eq!(Index::parse(&index.encode()).unwrap(), index);
            }
        }
    }
}
