//! Hashes one object while its bytes arrive.

use std::sync::Arc;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest as Crc};
use futures::TryStreamExt;
use infeed_core::error::{Error, Result, setting::VERIFY_NEVER};
use md5::Md5;
use object_store::{GetOptions, GetRange, GetResult};
use sha1::{Digest, Sha1};
use sha2::Sha256;

pub(crate) use super::sent::SentChecksums;
use super::{
    hash_threads::HashThreads,
    sent::{Sum, Tag},
    verify::{Judged, Trust, Verify, hex},
};
use crate::Extent;

/// Most bytes that are hashed in the task that reads. Handing them to another thread costs this thread 2 to 7 µs, as
/// much as an MD5 of 4 KiB (3 to 6 µs) or a CRC-32C of 128 KiB (6 to 9 µs; release build, two busy vCPUs).
const DIGEST_HERE: usize = 4 << 10;
const CRC_HERE: usize = 128 << 10;
/// No other read uses parts of this length.
const OTHER_PART: u64 = (5 << 20) + 4093;

/// The expected hash of an object, and the hash of its bytes so far.
#[derive(Debug)]
pub struct Check {
    hash: Hash,
    object: String,
    trust: Arc<Trust>,
}

#[derive(Clone)]
enum Hash {
    Nothing,
    Crc { name: &'static str, digest: Box<Crc>, bits: u8, wanted: u64 },
    Sha1(Sha1, [u8; 20]),
    Sha256(Box<Sha256>, [u8; 32]),
    Md5(Md5, Md5Of),
}

/// Where the expected MD5 comes from.
#[derive(Clone, Copy)]
enum Md5Of {
    Sum([u8; 16]),
    /// If it is not certain to be an MD5, [`Trust`] decides.
    Tag(Tag),
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Crc { name, .. } => name,
            Self::Sha1(..) => "SHA-1",
            Self::Sha256(..) => "SHA-256",
            Self::Md5(_, Md5Of::Sum(_)) => "MD5",
            Self::Md5(_, Md5Of::Tag(_)) => "ETag",
        })
    }
}

/// What came with an answer through [`Connector`](crate::Connector).
pub(crate) fn told(result: &GetResult) -> Option<SentChecksums> {
    result.extensions.get::<SentChecksums>().copied()
}

impl Check {
    /// `object` is its name in messages.
    pub(crate) fn new(told: Option<SentChecksums>, how: Verify, object: String, trust: &Arc<Trust>) -> Self {
        let crc =
            |name, algorithm, bits, wanted| Hash::Crc { name, digest: Box::new(Crc::new(algorithm)), bits, wanted };
        let told = told.unwrap_or_default();
        let hash = match (how, told.sum, told.tag) {
            (Verify::Never, ..) => Hash::Nothing,
            (_, Some(Sum::Crc64Nvme(sum)), _) => crc("CRC-64/NVME", CrcAlgorithm::Crc64Nvme, 64, sum),
            (_, Some(Sum::Crc32c(sum)), _) => crc("CRC-32C", CrcAlgorithm::Crc32Iscsi, 32, sum.into()),
            (_, Some(Sum::Crc32(sum)), _) => crc("CRC-32", CrcAlgorithm::Crc32IsoHdlc, 32, sum.into()),
            (Verify::Auto, ..) if told.by_tls => Hash::Nothing,
            (_, Some(Sum::Sha1(sum)), _) => Hash::Sha1(Sha1::new(), sum),
            (_, Some(Sum::Sha256(sum)), _) => Hash::Sha256(Box::default(), sum),
            (_, Some(Sum::Md5(sum)), _) => Hash::Md5(Md5::new(), Md5Of::Sum(sum)),
            (_, None, Some(tag)) if tag.sure || !trust.doubts_tags() => Hash::Md5(Md5::new(), Md5Of::Tag(tag)),
            _ => Hash::Nothing,
        };
        Self { hash, object, trust: Arc::clone(trust) }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
    }

    /// Compares the hash; `extent` is the object. May read it once more, in other parts.
    ///
    /// # Errors
    /// `Corrupt` if the bytes differ from those stored. If a repeated read gives the same bytes, they may be accepted;
    /// see `verify.rs`.
    pub async fn finish(self, extent: &Extent) -> Result<()> {
        let Self { hash, object, trust } = self;
        let compared = match hash {
            Hash::Nothing => {
                trust.count_length();
                return Ok(());
            }
            Hash::Md5(digest, wanted) => {
                let found = digest.finalize().into();
                return judge(found, wanted, &object, &trust, extent).await;
            }
            Hash::Crc { name, digest, bits, wanted } => {
                let of = |sum: u64| sum.to_be_bytes()[8 - usize::from(bits) / 8..].to_vec();
                compare(name, &of(digest.finalize()), &of(wanted))
            }
            Hash::Sha1(digest, wanted) => compare("SHA-1", &digest.finalize(), &wanted),
            Hash::Sha256(digest, wanted) => compare("SHA-256", &digest.finalize(), &wanted),
        };
        compared.inspect(|()| trust.count_checksum())
    }

    /// Hashes all bytes, without occupying the thread for long.
    pub(crate) async fn run(mut self, bytes: &Bytes, extent: &Extent, threads: &HashThreads) -> Result<()> {
        let here = match self.hash {
            Hash::Nothing => return self.finish(extent).await,
            Hash::Crc { .. } => CRC_HERE,
            Hash::Sha1(..) | Hash::Sha256(..) | Hash::Md5(..) => DIGEST_HERE,
        };
        self.hash = threads.hash(self.hash, bytes, here, Hash::update).await;
        self.finish(extent).await
    }
}

impl Hash {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Nothing => {}
            Self::Crc { digest, .. } => digest.update(bytes),
            Self::Sha1(digest, _) => digest.update(bytes),
            Self::Sha256(digest, _) => digest.update(bytes),
            Self::Md5(digest, _) => digest.update(bytes),
        }
    }
}

/// Compares an object's MD5 with the expected one.
async fn judge(found: [u8; 16], wanted: Md5Of, object: &str, trust: &Trust, extent: &Extent) -> Result<()> {
    let tag = match wanted {
        Md5Of::Sum(wanted) => return compare("MD5", &found, &wanted).inspect(|()| trust.count_checksum()),
        Md5Of::Tag(tag) => tag,
    };
    if found == tag.md5 {
        trust.agreed();
        return Ok(());
    }
    let again = !tag.sure && trust.differed(object, found) == Judged::Again;
    if again && in_other_parts(extent).await == Some(found) && trust.give_out(object, found) {
        return Ok(());
    }
    let tags = match tag.sure {
        true => String::new(),
        false => format!("; or set {VERIFY_NEVER}, if this store's ETags are not MD5s"),
    };
    Err(wrong("MD5", &found, &tag.md5, &tags))
}

/// The MD5 of an object that is read in other parts than before: an error on the way would then hit other bytes. `None`
/// if it can't be read. Sends requests without a permit: the caller holds one already, and might wait for a second one
/// forever.
async fn in_other_parts(extent: &Extent) -> Option<[u8; 16]> {
    let Extent { source, name, size, .. } = extent;
    let (path, size) = (source.path(name).ok()?, (*size)?);
    // At least two parts, with cuts that differ from those of other reads.
    let part = (size / 2 + 1).min(OTHER_PART);
    let if_match = extent.if_match();
    let mut md5 = Md5::new();
    let mut at = 0;
    while at < size {
        let range = at..(at + part).min(size);
        let length = range.end - range.start;
        let options =
            GetOptions { range: Some(GetRange::Bounded(range)), if_match: if_match.clone(), ..GetOptions::default() };
        let mut frames = source.0.store.get_opts(&path, options).await.ok()?.into_stream();
        let mut left = length;
        while let Some(frame) = frames.try_next().await.ok()? {
            left = left.checked_sub(frame.len() as u64)?;
            md5.update(&frame);
        }
        if left > 0 {
            return None;
        }
        at += length;
    }
    Some(md5.finalize().into())
}

fn compare(name: &str, found: &[u8], wanted: &[u8]) -> Result<()> {
    if found == wanted { Ok(()) } else { Err(wrong(name, found, wanted, "")) }
}

fn wrong(name: &str, found: &[u8], wanted: &[u8], more: &str) -> Error {
    let (found, wanted) = (hex(found), hex(wanted));
    Error::corrupt(format!(
        "the received bytes differ from those stored: their {name} is {found}, the store reports {wanted}"
    ))
    .with_hint(format!(
        "check the network, then the object where it is stored, and write it again if it is damaged there{more}"
    ))
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    /// "123456789", whose hashes are in every catalogue of hash functions.
    #[test]
    fn sums_are_those_of_the_catalogues() {
        let sums = [
            Sum::Crc64Nvme(0xae8b_1486_0a79_9888),
            Sum::Crc32c(0xe306_9283),
            Sum::Crc32(0xcbf4_3926),
            Sum::Md5(0x25f9_e794_323b_4538_85f5_181f_1b62_4d0b_u128.to_be_bytes()),
            Sum::Sha1(*b"\xf7\xc3\xbc\x1d\x80\x8e\x04\x73\x2a\xdf\x67\x99\x65\xcc\xc3\x4c\xa7\xae\x34\x41"),
            Sum::Sha256(
                *b"\x15\xe2\xb0\xd3\xc3\x38\x91\xeb\xb0\xf1\xef\x60\x9e\xc4\x19\x42\x0c\x20\xe3\x20\xce\x94\xc6\x5f\xbc\x8c\x33\x12\x44\x8e\xb2\x25",
            ),
        ];
        let store = Arc::new(object_store::memory::InMemory::new());
        let source = crate::Source::from_store(store, object_store::path::Path::default(), "test://");
        let extent = Extent::whole(&source, "a", 9);
        let trust = Arc::<Trust>::default();
        for sum in sums {
            let sent = SentChecksums { sum: Some(sum), by_tls: true, ..SentChecksums::default() };
            let check = || Check::new(Some(sent), Verify::Checksums, "a".into(), &trust);
            let mut pieces = check();
            pieces.update(b"1234");
            pieces.update(b"56789");
            block_on(pieces.finish(&extent)).unwrap_or_else(|error| panic!("{sum:?}: {error}"));
            let error = block_on(check().run(&Bytes::from_static(b"123456788"), &extent, &Arc::default())).unwrap_err();
            assert_eq!(error.kind(), infeed_core::error::ErrorKind::Corrupt);
            assert!(error.to_string().contains("the store reports"), "{error}");
        }
        assert_eq!(trust.verified().checksum, 6);
        block_on(Check::new(None, Verify::Checksums, "a".into(), &trust).finish(&extent)).unwrap();
        assert_eq!(trust.verified().length_only, 1);
    }

    #[test]
    fn what_tls_guards_is_compared_with_crcs_alone_unless_all_is_asked_for() {
        let md5 = Tag { md5: [7; 16], sure: true };
        let (crc, sha) = (Some(Sum::Crc32c(1)), Some(Sum::Sha256([1; 32])));
        let all = [(crc, None), (sha, None), (Some(Sum::Md5([1; 16])), None), (None, Some(md5))];
        for (how, by_tls, compared) in [
            (Verify::Auto, true, [true, false, false, false]),
            (Verify::Auto, false, [true; 4]),
            (Verify::Checksums, true, [true; 4]),
            (Verify::Never, false, [false; 4]),
        ] {
            let compares = all.map(|(sum, tag)| {
                let sent = Some(SentChecksums { sum, tag, by_tls });
                !matches!(Check::new(sent, how, "a".into(), &Arc::default()).hash, Hash::Nothing)
            });
            assert_eq!(compares, compared, "{how:?}, TLS {by_tls}");
        }
    }
}
