//! Reads the elements of a DICOM file, one after another, from its first bytes.

use infeed_core::error::{Error, Result};

/// Group and element number.
pub(super) type Tag = (u16, u16);

pub(super) const ITEM: Tag = (0xfffe, 0xe000);
pub(super) const END_OF_ITEM: Tag = (0xfffe, 0xe00d);
pub(super) const END_OF_SEQUENCE: Tag = (0xfffe, 0xe0dd);

/// How elements are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// Whether each element contains the type of its value (DICOM's explicit VR).
    pub(super) explicit: bool,
    pub(super) big_endian: bool,
}

impl Form {
    pub(super) const EXPLICIT: Self = Self { explicit: true, big_endian: false };
    pub(super) const IMPLICIT: Self = Self { explicit: false, big_endian: false };
}

/// Why an element can't be read.
#[derive(Debug)]
pub(super) enum Stop {
    /// More of the file is needed: up to this byte.
    More(u64),
    Bad(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Bad(error)
    }
}

pub(super) fn bad(what: impl Into<std::borrow::Cow<'static, str>>) -> Stop {
    Stop::Bad(Error::corrupt(what))
}

/// One element. Its value may be outside the bytes that were read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element {
    pub(super) tag: Tag,
    /// The type of the value; zeros in the implicit form and for items.
    pub(super) vr: [u8; 2],
    /// `None`: the value extends to a delimiter.
    pub(super) len: Option<u32>,
    /// Where the value begins.
    pub(super) at: usize,
}

impl Element {
    /// The end of the value; `None` if the element has no length.
    pub(super) fn end(&self) -> Option<usize> {
        self.at.checked_add(usize::try_from(self.len?).ok()?)
    }
}

/// The deepest nesting of sequences that is read. Real files have about 5 levels.
const DEEPEST: usize = 24;

/// The first bytes of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elements<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) form: Form,
}

impl<'a> Elements<'a> {
    fn part(&self, at: usize, len: usize) -> Result<&'a [u8], Stop> {
        let end = at.saturating_add(len);
        self.bytes.get(at..end).ok_or(Stop::More(end as u64))
    }

    pub(super) fn u16(&self, at: usize) -> Result<u16, Stop> {
        let bytes = self.part(at, 2)?.try_into().expect("two bytes");
        Ok(if self.form.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    pub(super) fn u32(&self, at: usize) -> Result<u32, Stop> {
        let bytes = self.part(at, 4)?.try_into().expect("four bytes");
        Ok(if self.form.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    /// Whether the element at `at` contains the type of its value. Otherwise the length of the value is there, which
    /// two letters would make 16 kB or more.
    pub(super) fn has_type(&self, at: usize) -> Result<bool, Stop> {
        Ok(self.part(at.saturating_add(4), 2)?.iter().all(u8::is_ascii_uppercase))
    }

    /// The element that begins at `at`.
    pub(super) fn next(&self, at: usize) -> Result<Element, Stop> {
        let tag = (self.u16(at)?, self.u16(at.saturating_add(2))?);
        let known = |len: u32| (len != u32::MAX).then_some(len);
        let (vr, len, value) = if tag.0 == 0xfffe || !self.form.explicit {
            ([0; 2], known(self.u32(at + 4)?), at + 8)
        } else {
            let vr: [u8; 2] = self.part(at + 4, 2)?.try_into().expect("two bytes");
            if !vr.iter().all(u8::is_ascii_uppercase) {
                let what = format!("there is no element at byte {at}: its type would be `{}`", vr.escape_ascii());
                return Err(bad(what));
            }
            match &vr {
                b"OB" | b"OD" | b"OF" | b"OL" | b"OV" | b"OW" | b"SQ" | b"SV" | b"UC" | b"UN" | b"UR" | b"UT"
                | b"UV" => (vr, known(self.u32(at + 8)?), at + 12),
                _ => (vr, Some(u32::from(self.u16(at + 6)?)), at + 8),
            }
        };
        Ok(Element { tag, vr, len, at: value })
    }

    /// The value of an element.
    pub(super) fn value(&self, element: &Element) -> Result<&'a [u8], Stop> {
        let len = element.len.ok_or_else(|| bad(format!("{} has no length", name(element.tag))))?;
        // The values that are read are far shorter: even the positions of 10,000 frames are in one item each.
        if len > 16 << 20 {
            return Err(bad(format!("{} has {len} bytes", name(element.tag))));
        }
        self.part(element.at, len as usize)
    }

    /// Where the next element begins.
    pub(super) fn after(&self, element: &Element) -> Result<usize, Stop> {
        self.skip(element, 0)
    }

    fn skip(&self, element: &Element, depth: usize) -> Result<usize, Stop> {
        if let Some(end) = element.end() {
            return Ok(end);
        }
        if depth > DEEPEST {
            return Err(bad(format!("more than {DEEPEST} nested sequences")));
        }
        // A value of unknown type is written in the implicit form, whatever the form of the file.
        let form = if &element.vr == b"UN" { Form::IMPLICIT } else { self.form };
        let inner = Self { form, ..*self };
        let mut at = element.at;
        loop {
            let next = inner.next(at)?;
            match next.tag {
                END_OF_SEQUENCE | END_OF_ITEM => return Ok(next.at),
                _ => at = inner.skip(&next, depth + 1)?,
            }
        }
    }

    /// The items of a sequence: where the elements of each begin, and where they end unless a delimiter ends them.
    pub(super) fn items(&self, sequence: &Element) -> Result<Vec<(usize, Option<usize>)>, Stop> {
        let mut items = Vec::new();
        let mut at = sequence.at;
        let end = sequence.end();
        while end.is_none_or(|end| at < end) {
            let item = self.next(at)?;
            match item.tag {
                ITEM => items.push((item.at, item.end())),
                END_OF_SEQUENCE if end.is_none() => break,
                tag => return Err(bad(format!("{} where an item of {} should begin", name(tag), name(sequence.tag)))),
            }
            at = self.skip(&item, 0)?;
        }
        Ok(items)
    }

    /// Calls `each` with the elements from `at` to `end`, or to a delimiter. Stops when `each` returns `false`.
    pub(super) fn walk(
        &self,
        mut at: usize,
        end: Option<usize>,
        mut each: impl FnMut(&Element) -> Result<bool, Stop>,
    ) -> Result<(), Stop> {
        while end.is_none_or(|end| at < end) {
            let element = self.next(at)?;
            if matches!(element.tag, END_OF_ITEM | END_OF_SEQUENCE) || !each(&element)? {
                break;
            }
            at = self.after(&element)?;
        }
        Ok(())
    }
}

/// The tag as in messages.
pub(super) fn name((group, element): Tag) -> String {
    format!("({group:04x},{element:04x})")
}
