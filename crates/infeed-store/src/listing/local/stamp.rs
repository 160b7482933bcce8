//! Detects whether a folder still has the same entries as when it was listed.

use std::{
    collections::HashSet,
    fs,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Changes closer together may leave the same time: FAT counts in steps of 2 s, ext3 in steps of 1 s, others in ticks
/// of the kernel.
const STEP: Duration = Duration::from_secs(2);

/// Inode, length, and two times in nanoseconds: the last change of a folder's entries, and the last change of anything
/// about the folder.
///
/// The device number is left out: it differs on each machine that mounts a network file system, and after some
/// restarts. The second time makes up for it. No program can set it, so it reveals copies and archives that restore a
/// folder's old time, and another file system mounted in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(pub(super) [u64; 4]);

impl Stamp {
    #[cfg(unix)]
    pub(crate) fn of(meta: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        // A time out of range becomes the far future, which is never settled.
        let nanoseconds = |s: i64, ns: i64| s.saturating_mul(1_000_000_000).saturating_add(ns) as u64;
        let (modified, changed) =
            (nanoseconds(meta.mtime(), meta.mtime_nsec()), nanoseconds(meta.ctime(), meta.ctime_nsec()));
        Self([meta.ino(), meta.size(), modified, changed])
    }

    /// Never settled: the system does not report enough.
    #[cfg(not(unix))]
    pub(crate) fn of(_: &fs::Metadata) -> Self {
        Self([0; 4])
    }

    /// Whether a change after `now`, when the stamp was taken, would have given another stamp.
    pub(super) fn is_settled(self, now: SystemTime) -> bool {
        let [_, _, modified, changed] = self.0.map(|value| value as i64);
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64);
        // A file system without times (0) makes its folders up.
        modified > 0 && changed > 0 && modified.max(changed).saturating_add(STEP.as_nanos() as i64) <= now
    }
}

/// The file systems whose folders are trusted to change their stamp when a file is added or removed. FUSE is not
/// trusted: many FUSE file systems show a bucket and invent times.
#[derive(Debug, Default)]
pub(super) struct Believed {
    not: HashSet<u64>,
}

impl Believed {
    pub(super) fn of_this_machine() -> Self {
        Self::parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    /// `36 35 98:0 / /mnt rw,noatime master:1 - ext4 /dev/root rw`
    fn parse(mounts: &str) -> Self {
        let fuse = mounts.lines().filter_map(|line| {
            let (head, tail) = line.split_once(" - ")?;
            tail.starts_with("fuse").then_some(())?;
            let (major, minor) = head.split(' ').nth(2)?.split_once(':')?;
            let (major, minor): (u64, u64) = (major.parse().ok()?, minor.parse().ok()?);
            // Combined as in glibc.
            Some((major & 0xfff) << 8 | (major & !0xfff) << 32 | minor & 0xff | (minor & !0xff) << 12)
        });
        Self { not: fuse.collect() }
    }

    #[cfg(unix)]
    pub(super) fn holds(&self, meta: &fs::Metadata) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        !self.not.contains(&meta.dev())
    }

    #[cfg(not(unix))]
    pub(super) fn holds(&self, _: &fs::Metadata) -> bool {
        self.not.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_settled_when_both_times_are_two_seconds_old() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000);
        let settled = |modified: i64, changed: i64| {
            let nanoseconds = [modified, changed].map(|ms| (ms * 1_000_000) as u64);
            Stamp([1, 2, nanoseconds[0], nanoseconds[1]]).is_settled(now)
        };
        assert!(settled(998_000, 998_000) && settled(1, 1));
        assert!(!settled(998_001, 500) && !settled(500, 998_001), "either time");
        assert!(!settled(2_000_000, 1) && !settled(0, 1) && !settled(1, 0) && !settled(-1, -1));
        assert!(!Stamp([1, 2, i64::MAX as u64, 5]).is_settled(now), "a time that does not fit");
    }

    #[cfg(unix)]
    #[test]
    fn folders_of_fuse_are_not_believed() {
        use std::os::unix::fs::MetadataExt as _;
        let meta = fs::metadata(".").unwrap();
        let dev = meta.dev();
        let (major, minor) = ((dev >> 8) & 0xfff | (dev >> 32) & !0xfff, dev & 0xff | (dev >> 12) & !0xff);
        let mounts = |kind: &str| {
            format!("22 1 0:1 / /proc rw - proc proc rw\n9 8 {major}:{minor} / /m\\040x rw a:1 - {kind} x rw\n")
        };
        assert!(
            Believed::parse(&mounts("ext4")).holds(&meta) && Believed::parse("no\nsuch - fuse\nlines").holds(&meta)
        );
        assert!(
            !Believed::parse(&mounts("fuse.rclone")).holds(&meta) && !Believed::parse(&mounts("fuse")).holds(&meta)
        );
    }
}
