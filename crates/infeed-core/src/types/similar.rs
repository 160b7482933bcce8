//! The name that a user probably meant by a mistyped one.

/// The entry of `names` closest to `word`, if it is close: at most one letter in three changed, added, left out or
/// swapped with its neighbour; or an entry that begins with `word`. Of equally close entries, the first.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = plain(word);
    // A word this long is no typing error, and comparing takes time proportional to its length.
    if word.is_empty() || word.len() > LONGEST {
        return None;
    }
    let most = word.len().div_ceil(3);
    let far = |name: &[char]| match name.starts_with(&word) && word.len() >= BEGINNING {
        true => distance(&word, name).min(most),
        false => distance(&word, name),
    };
    let near = names.into_iter().map(|name| (far(&plain(name)), name));
    near.filter(|(far, _)| *far <= most).min_by_key(|(far, _)| *far).map(|(_, name)| name)
}

/// The most letters of a word that is compared.
const LONGEST: usize = 64;
/// The fewest letters that count as the beginning of a name.
const BEGINNING: usize = 4;

/// Letters only: `RandomCrop`, `random-crop` and `random_crop` are the same name.
fn plain(name: &str) -> Vec<char> {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Letters to change, add, leave out or swap to turn one word into the other (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = [Vec::new(), (0..=b.len()).collect::<Vec<usize>>(), Vec::new()];
    for i in 0..a.len() {
        // The row before the last, the last row, and the row being computed.
        let [older, last, row] = &mut rows;
        *row = vec![i + 1];
        for j in 0..b.len() {
            let mut least = (last[j] + usize::from(a[i] != b[j])).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(older[j - 1] + 1);
            }
            row.push(least);
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_near_and_another_word_is_not() {
        let names = ["imagenet-train", "imagenet-val", "cifar-train", "none", "random_resized_crop", "random_crop"];
        for (word, near) in [
            ("imagenet-trian", Some("imagenet-train")),
            ("imagenet_train", Some("imagenet-train")),
            ("imagenet-vall", Some("imagenet-val")),
            ("RandomResizedCrop", Some("random_resized_crop")),
            ("random_resize_crop", Some("random_resized_crop")),
            ("radom_crop", Some("random_crop")),
            ("nonw", Some("none")),
            ("imagenet", Some("imagenet-train")),
            ("cifar", Some("cifar-train")),
            ("resnet50", None),
            ("zebra", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, names), near, "{word}");
        }
        assert_eq!(nearest("x", []), None);
        assert_eq!(nearest(&"none".repeat(1000), names), None);
    }

    #[test]
    fn distances_count_letters() {
        let between = |a: &str, b: &str| distance(&plain(a), &plain(b));
        for (a, b, want) in [
            ("", "", 0),
            ("abc", "", 3),
            ("", "abc", 3),
            ("trian", "train", 1),
            ("kitten", "sitting", 3),
            ("ca", "abc", 3),
        ] {
            assert_eq!(between(a, b), want, "{a} {b}");
            assert_eq!(between(b, a), want, "{b} {a}");
        }
    }
}
