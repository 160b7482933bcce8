//! The names of the objects that are chunks.

/// The form of the names: `c/0/1`, `0.1` or similar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    /// Whether the name begins with `c`, as in version 3.
    pub(super) with_c: bool,
    /// `/` or `.`
    pub(super) separator: char,
}

impl Keys {
    /// The number of the chunk in its grid, in C order; `None` if `key` is not the name of a chunk.
    pub(super) fn number(self, key: &str, grid: &[u64]) -> Option<u64> {
        // An array without axes has one chunk.
        if grid.is_empty() {
            return (key == if self.with_c { "c" } else { "0" }).then_some(0);
        }
        let mut parts = key.split(self.separator);
        if self.with_c && parts.next()? != "c" {
            return None;
        }
        let mut number = 0u64;
        for count in grid {
            let index = index(parts.next()?).filter(|index| index < count)?;
            number = number.checked_mul(*count)?.checked_add(index)?;
        }
        parts.next().is_none().then_some(number)
    }
}

/// Parses a number without leading zeros, so that no two names are of one chunk.
fn index(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_told_by_their_names_alone() {
        let number = |with_c, separator, key: &str| Keys { with_c, separator }.number(key, &[3, 4]);
        assert_eq!(number(true, '/', "c/2/3"), Some(11));
        assert_eq!(number(true, '.', "c.1.0"), Some(4));
        assert_eq!(number(false, '.', "0.3"), Some(3));
        assert_eq!(number(false, '/', "0/3"), Some(3));
        assert_eq!(Keys { with_c: false, separator: '.' }.number("0", &[]), Some(0));
        assert_eq!(Keys { with_c: true, separator: '/' }.number("c", &[]), Some(0));
        for wrong in ["0", "0.4", "3.0", "0.1.2", "00.1", "+0.1", "0.-1", "0.", ".0", "", "zarr.json", "c/0/0"] {
            assert_eq!(number(false, '.', wrong), None, "{wrong}");
        }
        assert_eq!(Keys { with_c: false, separator: '.' }.number("1.1", &[u64::MAX, u64::MAX]), None);
    }
}
