//! What is known of a shard: its samples, and where their members lie. And the file that keeps it.
//!
//! ```text
//! "infeed shards 1\n"
//! u64 bytes of the body, u128 xxh3 of the body                                  little-endian
//! body: classes: varint count, texts (varint length, UTF-8), 0 for none
//!       varint shards, each:
//!         text name (relative to this file), varint size, text etag (empty: none), u128 job (0: none)
//!         u8 1 when members have a crc32c, else 0
//!         varint extensions, texts
//!         varint samples, each:
//!           varint bytes shared with the key before, text the rest of the key
//!           varint members, each: varint extension, varint blocks of 512 bytes from the end of the member before
//!                                 to this one's content, varint size, u32 crc32c if there are any
//! ```
//!
//! `shards.infeed` tells all shards of a folder, `NAME.infeed` beside `NAME.tar` one. A shard of another size, or with
//! another ETag, is not the one that was told: it is indexed again.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use super::header::{BLOCK, padded, split_name};
use crate::{
    error::{Error, Result},
    source::Object,
};

/// The manifest of a folder.
pub(crate) const MANIFEST: &str = "shards.infeed";
/// What ends the names of manifests and of sidecars.
pub(super) const ENDING: &str = ".infeed";

const MAGIC: &[u8] = b"infeed shards 1\n";
const HEAD: usize = MAGIC.len() + 8 + 16;

/// One file of a sample: 16 bytes, as there may be millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Which of the shard's extensions.
    pub(crate) extension: u16,
    /// Where its content begins, in blocks.
    pub(crate) block: u32,
    pub(crate) size: u32,
    /// Of its content, when the shard has them.
    pub(crate) crc: u32,
}

impl Member {
    pub(crate) const fn start(&self) -> u64 {
        self.block as u64 * BLOCK
    }

    pub(crate) const fn end(&self) -> u64 {
        self.start() + self.size as u64
    }
}

/// A tar and its samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shard {
    /// Relative to the source.
    pub(crate) name: Arc<str>,
    pub(crate) size: u64,
    pub(crate) etag: Option<Arc<str>>,
    /// What it was prepared from and how; 0 when nobody knows.
    pub(crate) job: u128,
    pub(crate) has_crc: bool,
    pub(crate) extensions: Vec<String>,
    keys: String,
    /// Where each key ends in `keys`.
    key_ends: Vec<u32>,
    members: Vec<Member>,
    /// Where each sample's members end in `members`.
    member_ends: Vec<u32>,
}

fn bounds(ends: &[u32], i: usize) -> std::ops::Range<usize> {
    i.checked_sub(1).map_or(0, |before| ends[before] as usize)..ends[i] as usize
}

impl Shard {
    pub(crate) fn of(object: &Object) -> Self {
        let etag = object.etag.as_deref().map(Into::into);
        Self { name: object.name.as_str().into(), size: object.size, etag, ..Self::default() }
    }

    /// Samples.
    pub(crate) fn len(&self) -> usize {
        self.key_ends.len()
    }

    /// `i` is below `len`.
    pub(crate) fn key(&self, i: usize) -> &str {
        &self.keys[bounds(&self.key_ends, i)]
    }

    /// `i` is below `len`.
    pub(crate) fn members(&self, i: usize) -> &[Member] {
        &self.members[bounds(&self.member_ends, i)]
    }

    pub(crate) fn all_members(&self) -> &[Member] {
        &self.members
    }

    pub(super) fn resident_bytes(&self) -> usize {
        self.keys.capacity()
            + (self.key_ends.capacity() + self.member_ends.capacity()) * 4
            + self.members.capacity() * 16
    }

    /// Whether this tells of the tar that is there now.
    pub(super) fn is_of(&self, object: &Object) -> bool {
        let same_etag = match (&self.etag, &object.etag) {
            (Some(known), Some(found)) => **known == **found,
            // A copy elsewhere has none, or another.
            _ => true,
        };
        self.size == object.size && same_etag
    }

    /// Adds a file behind those before, to the last sample when it has the same key. Names without an extension are
    /// passed over, as WebDataset does.
    ///
    /// # Errors
    /// A file that is there twice, a file of 4 GiB and more, content that begins within a block.
    pub(crate) fn add(&mut self, name: &str, start: u64, size: u64, crc: Option<u32>) -> Result<()> {
        let Some((key, extension)) = split_name(name) else { return Ok(()) };
        let refuse =
            |what: String, hint: &'static str| Err(Error::corrupt(what).at_range(start..start + size).hint(hint));
        let (Ok(block), Ok(size), 0) = (u32::try_from(start / BLOCK), u32::try_from(size), start % BLOCK) else {
            let what = format!("`{name}` has {size} bytes at {start}");
            return refuse(
                what,
                "a member begins at a multiple of 512 and has less than 4 GiB; cut it into smaller ones",
            );
        };
        let extension = self.extension(extension)?;
        let last = self.len().checked_sub(1).filter(|last| self.key(*last) == key);
        match last {
            Some(last) if self.members(last).iter().any(|member| member.extension == extension) => {
                return refuse(format!("`{name}` is there twice"), "pack the tar anew; neither of the two is taken");
            }
            Some(_) => *self.member_ends.last_mut().expect("each sample has an end") += 1,
            None => {
                self.keys.push_str(key);
                let too_many = |_| Error::corrupt("a shard with 4 GiB of names");
                self.key_ends.push(u32::try_from(self.keys.len()).map_err(too_many)?);
                self.member_ends.push(u32::try_from(self.members.len() + 1).map_err(too_many)?);
            }
        }
        self.has_crc = crc.is_some();
        self.members.push(Member { extension, block, size, crc: crc.unwrap_or(0) });
        Ok(())
    }

    fn extension(&mut self, name: String) -> Result<u16> {
        if let Some(at) = self.extensions.iter().position(|known| *known == name) {
            return Ok(at as u16);
        }
        // Names like `2024.01.31-17.jpg` would make an extension of each file.
        if self.extensions.len() == 1000 {
            return Err(Error::corrupt(format!("more than 1000 extensions, such as `.{name}`"))
                .hint("the key ends at the first dot of the file's name; name files without dots in the key"));
        }
        self.extensions.push(name);
        Ok(self.extensions.len() as u16 - 1)
    }

    /// Finds a key whose members do not lie together.
    pub(super) fn check_keys(&self) -> Result<()> {
        let mut seen = std::collections::HashSet::with_capacity(self.len());
        match (0..self.len()).find(|i| !seen.insert(self.key(*i))) {
            None => Ok(()),
            Some(i) => {
                let range =
                    self.members(i).first().map_or(0, Member::start)..self.members(i).last().map_or(0, Member::end);
                let what = format!("key `{}` comes again after other keys", self.key(i));
                Err(Error::corrupt(what)
                    .at_range(range)
                    .hint("pack the members of a sample together, and each sample once"))
            }
        }
    }

    /// Cut to size, once it is whole.
    pub(crate) fn tighten(&mut self) {
        self.keys.shrink_to_fit();
        self.key_ends.shrink_to_fit();
        self.members.shrink_to_fit();
        self.member_ends.shrink_to_fit();
    }
}

/// What a manifest or a sidecar tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) classes: Vec<String>,
    pub(crate) shards: Vec<Shard>,
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn text(out: &mut Vec<u8>, text: &str) {
    number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

impl Manifest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEAD];
        number(&mut out, self.classes.len() as u64);
        self.classes.iter().for_each(|class| text(&mut out, class));
        number(&mut out, self.shards.len() as u64);
        self.shards.iter().for_each(|shard| shard.encode(&mut out));
        let body = &out[HEAD..];
        let head = [MAGIC, &(body.len() as u64).to_le_bytes(), &xxh3_128(body).to_le_bytes()].concat();
        out[..HEAD].copy_from_slice(&head);
        out
    }

    /// Any bytes give a manifest, or words for a warning.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let Some((head, body)) = bytes.split_at_checked(HEAD) else { return Err("it is cut off".into()) };
        let Some(head) = head.strip_prefix(MAGIC) else { return Err("it is of another version".into()) };
        let (length, sum) = head.split_at(8);
        if length != (body.len() as u64).to_le_bytes() {
            return Err(format!("it has {} bytes of another length", body.len()));
        }
        if sum != xxh3_128(body).to_le_bytes() {
            return Err("its checksum is wrong".into());
        }
        Self::parse_body(body).ok_or_else(|| "it makes no sense".into())
    }

    fn parse_body(body: &[u8]) -> Option<Self> {
        let mut rest = Rest(body);
        let classes = rest.list(1, |rest| rest.text().map(str::to_owned))?;
        let shards = rest.list(22, Shard::parse)?;
        rest.0.is_empty().then_some(Self { classes, shards })
    }
}

impl Shard {
    fn encode(&self, out: &mut Vec<u8>) {
        text(out, &self.name);
        number(out, self.size);
        text(out, self.etag.as_deref().unwrap_or_default());
        out.extend_from_slice(&self.job.to_le_bytes());
        out.push(self.has_crc.into());
        number(out, self.extensions.len() as u64);
        self.extensions.iter().for_each(|extension| text(out, extension));
        number(out, self.len() as u64);
        let (mut before, mut end) = ("", 0);
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

    fn parse(rest: &mut Rest<'_>) -> Option<Self> {
        let mut shard = Self { name: rest.text()?.into(), size: rest.number()?, ..Self::default() };
        shard.etag = Some(rest.text()?).filter(|etag| !etag.is_empty()).map(Into::into);
        shard.job = u128::from_le_bytes(rest.take(16)?.try_into().ok()?);
        shard.has_crc = match rest.take(1)? {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        shard.extensions = rest.list(1, |rest| rest.text().map(str::to_owned))?;
        // Keys share much with those before them, but not everything with everything.
        let longest = rest.0.len().saturating_mul(64);
        let samples = rest.count(3)?;
        shard.key_ends.reserve_exact(samples);
        shard.member_ends.reserve_exact(samples);
        let (mut end, mut before) = (0, 0);
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

/// What is still to be parsed.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, more) = self.0.split_at_checked(count)?;
        self.0 = more;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        str::from_utf8(self.take(length)?).ok()
    }

    /// A count of things that take `least` bytes each: not trusted with memory before.
    fn count(&mut self, least: usize) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count <= self.0.len() / least).then_some(count)
    }

    fn list<T>(&mut self, least: usize, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..self.count(least)?).map(|_| one(self)).collect()
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

    fn shard(samples: usize, crc: bool) -> Shard {
        let mut shard =
            Shard { etag: crc.then(|| "\"e\"".into()), job: 7, ..Shard::of(&Object::new("a/x.tar", 1 << 30)) };
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
        let manifest =
            Manifest { classes: vec!["a".into(), "b".into()], shards: vec![shard(50, true), shard(9, false)] };
        assert_eq!(Manifest::parse(&manifest.encode()).unwrap(), manifest);
        assert_eq!(Manifest::parse(&Manifest::default().encode()).unwrap(), Manifest::default());
        let one = &manifest.shards[0];
        assert_eq!((one.len(), one.key(8), one.members(8).len()), (50, "ä00001/ö8", 3));
        assert_eq!(one.extensions, ["jpg", "cls", "seg.png"]);
    }

    #[test]
    fn damage_is_found_wherever_it_is() {
        let bytes = Manifest { classes: vec!["a".into()], shards: vec![shard(9, true)] }.encode();
        for at in 0..bytes.len() {
            assert!(Manifest::parse(&bytes[..at]).is_err(), "cut at {at}");
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            assert!(Manifest::parse(&other).is_err(), "byte {at}");
        }
    }

    #[test]
    fn duplicates_and_scattered_keys_are_errors() {
        let mut one = Shard::of(&Object::new("x.tar", 1 << 20));
        one.add("a.jpg", 512, 10, None).unwrap();
        let error = one.add("a.JPG", 1536, 10, None).unwrap_err().to_string();
        assert!(error.contains("`a.JPG` is there twice"), "{error}");
        one.add("b.jpg", 1536, 10, None).unwrap();
        one.check_keys().unwrap();
        one.add("a.cls", 2560, 1, None).unwrap();
        let error = one.check_keys().unwrap_err().to_string();
        assert!(error.contains("key `a` comes again"), "{error}");
        assert!(one.add("big.bin", 4096, 1 << 32, None).is_err());
        assert!(one.add("odd.bin", 4097, 1, None).is_err());
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
        fn any_body_gives_a_manifest_or_nothing(at in 0usize..300, flip in any::<u8>(), cut in 0usize..2000) {
            let mut body = Manifest { classes: vec![], shards: vec![shard(12, true)] }.encode().split_off(HEAD);
            let at = at.min(body.len() - 1);
            body[at] ^= flip;
            body.truncate(body.len().saturating_sub(cut % 40));
            let _ = Manifest::parse_body(&body);
        }

        #[test]
        fn any_index_gives_a_shard_or_words(text in "(v1.2 [0-9]{1,3}\n)?([a-z]{3} [0-9]{0,5} [0-9]{0,4} [a-c]\\.[a-c]\n?){0,5}") {
            if let Ok(shard) = parse_wds2idx(text.as_bytes(), &Object::new("x.tar", 100_000)) {
                let manifest = Manifest { classes: vec![], shards: vec![shard] };
                prop_assert_eq!(Manifest::parse(&manifest.encode()).unwrap(), manifest);
            }
        }
    }
}
