//! Indexes written by DALI's `wds2idx`.

use infeed_store::Object;

use super::{
    header::{BLOCK, padded},
    shard::Shard,
};

/// Reads an index of DALI's `wds2idx`: a line `v1.2 SAMPLES`, then a line for each sample with `EXTENSION OFFSET SIZE
/// NAME` for each member. The older v1.1 has no names and is not read.
///
/// # Errors
/// What is wrong with it, in words for a warning.
pub(super) fn parse(bytes: &[u8], object: &Object) -> Result<Shard, String> {
    let text = str::from_utf8(bytes).map_err(|_| "it is not a text")?;
    let mut lines = text.lines();
    let (version, count) = lines.next().and_then(|line| line.split_once(' ')).unwrap_or_default();
    if version != "v1.2" {
        return Err("its version is not v1.2".into());
    }
    let count: usize = count.trim().parse().map_err(|_| "it does not contain the number of samples")?;
    let mut shard = Shard::of(object);
    let mut end = 0;
    for (i, line) in lines.by_ref().take(count).enumerate() {
        let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        let members = words.as_chunks::<4>();
        if !members.1.is_empty() {
            return Err(format!("line {} has {} words, not four for each member", i + 2, words.len()));
        }
        for [_, start, size, name] in members.0 {
            let (Ok(start), Ok(size)) = (start.parse::<u64>(), size.parse::<u64>()) else {
                return Err(format!("line {} has no offset or size", i + 2));
            };
            if start < BLOCK || start.checked_add(size).is_none_or(|end| end > object.size) {
                return Err(format!("line {} names {size} bytes at {start}, which the tar does not have", i + 2));
            }
            // A header has to fit between members; our index stores the distance from one member to the next.
            if start - BLOCK < end {
                return Err(format!("line {} names a member at {start}, before the end of another", i + 2));
            }
            end = padded(start + size);
            shard.add(name, start, size, None).map_err(|e| format!("line {}: {e}", i + 2))?;
        }
    }
    if shard.len() != count {
        return Err(format!("it has {} of {count} samples", shard.len()));
    }
    shard.check_keys().map_err(|e| e.to_string())?;
    Ok(shard)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tar::Index;

    #[test]
    fn an_index_of_wds2idx_is_read() {
        let object = Object::new("x.tar", 100_000);
        let text = "v1.2 2\njpg 512 1000 000.jpg cls 2048 1 000.cls\njpg 3072 50000 001.jpg cls 54784 2 001.cls\n";
        let shard = parse(text.as_bytes(), &object).unwrap();
        assert_eq!((shard.len(), shard.samples.key(1), shard.samples.members(1)[1].start()), (2, "001", 54784));
        for (text, says) in [
            ("v1.1 1\njpg 512 1000\n", "version"),
            ("v1.2 x\n", "number of samples"),
            ("v1.2 2\njpg 512 1000 000.jpg\n", "1 of 2"),
            ("v1.2 1\njpg 512 1000\n", "line 2 has 3 words"),
            ("v1.2 1\njpg 512 -1 0.jpg\n", "no offset"),
            ("v1.2 1\njpg 512 99999999 0.jpg\n", "the tar does not have"),
            ("v1.2 1\njpg 0 9 0.jpg\n", "the tar does not have"),
            ("v1.2 1\njpg 512 9 0.jpg jpg 1536 9 0.jpg\n", "twice"),
            ("v1.2 1\njpg 1536 9 0.jpg cls 512 9 0.cls\n", "before the end"),
            ("v1.2 2\njpg 512 900 0.jpg\njpg 1024 9 1.jpg\n", "before the end"),
        ] {
            let error = parse(text.as_bytes(), &object).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        assert!(parse(b"\xff\xfe", &object).is_err());
    }

    proptest! {
        #[test]
        fn any_index_gives_a_shard_or_words(text in "(v1.2 [0-9]{1,3}\n)?([a-z]{3} [0-9]{0,5} [0-9]{0,4} [a-c]\\.[a-c]\n?){0,5}") {
            if let Ok(shard) = parse(text.as_bytes(), &Object::new("x.tar", 100_000)) {
                let index = Index { classes: vec![], shards: vec![shard] };
                prop_assert_eq!(Index::parse(&index.encode().unwrap()).unwrap(), index);
            }
        }
    }
}
