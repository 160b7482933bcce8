//! The little that the files under test name of other rooms. Nothing here is called by a model but `codec`.

pub(crate) mod codec {
    use std::num::NonZeroUsize;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct ClassSet(pub(crate) u32);

    impl ClassSet {
        pub(crate) const ALL: Self = Self(u32::MAX);
        pub(crate) const NONE: Self = Self(0);

        pub(crate) const fn only(class: usize) -> Self {
            Self(1 << class)
        }

        pub(crate) const fn contains(self, class: usize) -> bool {
            class < 32 && self.0 & (1 << class) != 0
        }

        pub(crate) const fn and(self, other: Self) -> Self {
            Self(self.0 & other.0)
        }
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Class {
        pub(crate) workers: NonZeroUsize,
        pub(crate) batch: NonZeroUsize,
        pub(crate) reads: bool,
    }
}

#[allow(dead_code, reason = "named by code that no model runs")]
pub(crate) mod error {
    pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

    #[derive(Debug)]
    pub(crate) struct Error;

    pub(crate) enum ErrorKind {
        Internal,
    }

    impl Error {
        pub(crate) fn new(_kind: ErrorKind, _what: &'static str) -> Self {
            Self
        }

        pub(crate) fn with_hint(self, _hint: &'static str) -> Self {
            self
        }
    }
}

#[allow(dead_code, reason = "named by code that no model runs")]
pub(crate) mod source {
    use bytes::Bytes;

    use crate::error::{Error, Result};

    pub(crate) struct Reader;
    pub(crate) struct Source;

    pub(crate) struct Extent {
        pub(crate) source: Source,
        pub(crate) name: String,
        pub(crate) range: std::ops::Range<u64>,
    }

    impl Extent {
        pub(crate) fn len(&self) -> u64 {
            self.range.end - self.range.start
        }
    }

    impl Source {
        pub(crate) fn display_name(&self, name: &str) -> String {
            name.to_owned()
        }

        pub(crate) async fn fetch(&self, _extent: &Extent, _reader: &Reader) -> Result<Bytes> {
            Err(Error)
        }
    }
}
