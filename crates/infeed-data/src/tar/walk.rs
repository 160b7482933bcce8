//! Indexes a tar by one pass over its headers.

use infeed_core::{
    error::{Error, ErrorKind, Result},
    report::Stage,
};
use infeed_store::{Object, Source};

use super::{
    header::{BLOCK, Header, LONGEST_EXTRA, MemberKind, padded, parse_header, parse_pax},
    shard::Shard,
};
use crate::passes::Window;

/// At most this many bytes may follow the end of a tar without a warning.
const TRAILING: u64 = 1 << 20;

/// Finds all samples of a tar.
pub(super) async fn walk(source: &Source, object: &Object) -> Result<Shard> {
    let placed = |e: Error| e.at_stage(Stage::Open).at_object(source.display_name(&object.name));
    let mut reads = Window::new(source, object).map_err(placed)?;
    let mut shard = Shard::of(object);
    let links = walk_headers(&mut reads, object.size, &mut shard).await.map_err(placed)?;
    if let Some((count, first)) = links {
        let object = source.display_name(&object.name);
        tracing::warn!(
            object,
            first,
            "{count} members are links without bytes of their own, and are left out; pack the tar without links"
        );
    }
    shard.check_keys().map_err(placed)?;
    shard.tighten();
    Ok(shard)
}

/// Adds the samples, and returns the number of links and the name of the first.
async fn walk_headers(reads: &mut Window<'_>, size: u64, shard: &mut Shard) -> Result<Option<(u64, String)>> {
    let mut links: Option<(u64, String)> = None;
    let cut = |what: String| Error::corrupt(what).with_hint("the tar is truncated; fetch it again");
    let mut at = 0u64;
    // Values for the next member from an extra header before it.
    let mut long_name: Option<Vec<u8>> = None;
    let mut long_size: Option<u64> = None;
    while at < size {
        if size - at < BLOCK {
            let what = format!("{} bytes where a header of 512 belongs", size - at);
            return Err(cut(what).at_range(at..size));
        }
        let block = reads.get(at, BLOCK).await?;
        let header = parse_header(&block).map_err(|e| e.at_range(at..at + BLOCK))?;
        let Some(Header { name, size: stated, kind }) = header else {
            // Writers pad to 10 KiB, some to their own blocks. More bytes are another tar, which no tar reader reads.
            if size - at > TRAILING {
                tracing::warn!(
                    file = &*shard.name,
                    end = at,
                    size,
                    "the tar ends long before its file; of concatenated tars only the first is read"
                );
            }
            return Ok(links);
        };
        let content = at + BLOCK;
        let length = if kind == MemberKind::File { long_size.take().unwrap_or(stated) } else { stated };
        let end = content.checked_add(length).filter(|end| *end <= size);
        let Some(end) = end else {
            let name = String::from_utf8_lossy(&name).into_owned();
            let what = format!("`{name}` ends after {} of {length} bytes", size - content);
            return Err(cut(what).at_range(at..size));
        };
        match kind {
            MemberKind::LongName | MemberKind::Pax if length > LONGEST_EXTRA => {
                return Err(Error::corrupt(format!("{length} bytes for the name of a member")).at_range(at..end));
            }
            MemberKind::LongName => {
                let bytes = reads.get(content, length).await?;
                long_name = Some(bytes.split(|byte| *byte == 0).next().unwrap_or_default().to_vec());
            }
            MemberKind::Pax => {
                let pax = parse_pax(&reads.get(content, length).await?).map_err(|e| e.at_range(at..end))?;
                if pax.sparse {
                    return Err(sparse(at, end));
                }
                (long_name, long_size) = (pax.path.or(long_name), pax.size.or(long_size));
            }
            MemberKind::Sparse => return Err(sparse(at, end)),
            MemberKind::File => {
                let name = long_name.take().unwrap_or(name);
                let name = String::from_utf8(name).map_err(|e| {
                    let name = String::from_utf8_lossy(e.as_bytes()).into_owned();
                    Error::new(ErrorKind::Unsupported, format!("the name `{name}` is not Unicode")).at_range(at..end)
                })?;
                if shard.add(&name, content, length, None)? {
                    shard.set_label(&reads.get(content, length).await?);
                }
                reads.passed += 1;
            }
            MemberKind::Link => {
                let name = long_name.take().unwrap_or(name);
                links.get_or_insert_with(|| (0, String::from_utf8_lossy(&name).into_owned())).0 += 1;
                long_size = None;
            }
            MemberKind::Other => (long_name, long_size) = (None, None),
        }
        // At the very end, padding may be missing.
        at = padded(end);
    }
    // Cut between two members, a tar looks like this; so do those of writers that were not closed.
    shard.has_no_end = true;
    Ok(links)
}

fn sparse(at: u64, end: u64) -> Error {
    let what = "a sparse file, which does not store its bytes in order";
    Error::new(ErrorKind::Unsupported, what).at_range(at..end).with_hint("pack it without `--sparse`")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::executor::block_on;
    use object_store::{ObjectStoreExt, memory::InMemory, path::Path};

    use super::*;
    use crate::{Dataset, Open, Value, dataset_contract, open_source, read_one::read, tar::header};

    /// One member with this flag. Of a longer name the header has the first hundred bytes.
    fn member(flag: u8, name: &str, content: &[u8]) -> Vec<u8> {
        let mut block = header("", content.len() as u64).unwrap();
        let cut = &name.as_bytes()[..name.len().min(100)];
        block[..cut.len()].copy_from_slice(cut);
        block[156] = flag;
        block[148..156].copy_from_slice(b"        ");
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let padding = vec![0; (padded(content.len() as u64) - content.len() as u64) as usize];
        [&block[..], content, &padding].concat()
    }

    fn opened(members: &[Vec<u8>]) -> Arc<dyn Dataset> {
        let dataset = opened_with(members, |open| open);
        block_on(dataset_contract(&*dataset)).unwrap();
        dataset
    }

    fn opened_with(members: &[Vec<u8>], with: impl FnOnce(Open) -> Open) -> Arc<dyn Dataset> {
        let store = InMemory::new();
        let bytes = [members.concat(), vec![0; 1024]].concat();
        block_on(store.put(&Path::from("a.tar"), bytes.into())).unwrap();
        let source = Source::from_store(Arc::new(store), Path::default(), "test://x");
        block_on(with(open_source(source)).into_future()).unwrap()
    }

    fn texts(dataset: &dyn Dataset) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let of = |record| match &read(dataset, record).unwrap().values[..] {
            [Value::Bytes(content), Value::Bytes(key)] => (text(key), text(content)),
            other => panic!("{other:?}"),
        };
        (0..dataset.len()).map(of).collect()
    }

    #[test]
    fn long_names_whose_first_hundred_bytes_end_in_a_slash_are_files() {
        let folder = "x".repeat(99);
        let pair = |key: String, content: &str| (key, content.to_owned());
        for flag in [b'0', 0, b'7'] {
            let mut members = vec![member(flag, "short.txt", b"s"), member(b'5', &format!("{folder}/"), b"")];
            let mut want = vec![pair("short".into(), "s")];
            for (at, content) in ["one", "two"].into_iter().enumerate() {
                let name = format!("{folder}/a{at}.txt");
                match at {
                    0 => members.push(member(b'L', "././@LongLink", format!("{name}\0").as_bytes())),
                    _ => {
                        let record = format!(" path={name}\n");
                        let record = format!("{}{record}", record.len() + 3);
                        members.push(member(b'x', "PaxHeaders/a", record.as_bytes()));
                    }
                }
                members.push(member(flag, &name, content.as_bytes()));
                want.push(pair(format!("{folder}/a{at}"), content));
            }
            assert_eq!(texts(&*opened(&members)), want, "{flag}");
        }
        // With parts that are not of the key, so that the key itself is short.
        let name = format!("{}{}/a.txt", "./".repeat(20), "y".repeat(59));
        let members = [member(b'L', "././@LongLink", name.as_bytes()), member(b'0', &name, b"one")];
        assert_eq!(texts(&*opened(&members)), [pair(format!("{}/a", "y".repeat(59)), "one")]);
    }

    #[test]
    fn labels_are_numbers_and_names_of_classes_and_minus_one_stays() {
        let labels = ["1", "-1\n", "dog", " cat ", "2", "cow"];
        let member = |(i, label): (usize, &&str)| member(b'0', &format!("{i}.cls"), label.as_bytes());
        let members: Vec<_> = labels.iter().enumerate().map(member).collect();
        let dataset = opened_with(&members, |open| open.classes(["cat".to_owned(), "dog".to_owned()]));
        let label = |record| match read(&*dataset, record).map_err(|e| e.to_string())?.values[..] {
            [Value::Label(label), ..] => Ok(label),
            ref other => Err(format!("{other:?}")),
        };
        for (record, want) in [(0, 1), (1, -1), (2, 1), (3, 0)] {
            assert_eq!(label(record), Ok(want));
        }
        for (record, what) in
            [(4, "label 2 is not among the 2 classes"), (5, "`cow` is no number, and not among the 2")]
        {
            let error = label(record).unwrap_err();
            assert!(error.contains(what) && error.contains("a .cls file holds a number"), "{error}");
        }
    }

    #[test]
    fn folders_of_the_oldest_tars_are_no_samples() {
        for flag in [b'0', 0] {
            let long = format!("{}/b.d/", "x".repeat(99));
            let members = [
                member(flag, "a.d/", b""),
                member(flag, "a.d/1.txt", b"one"),
                member(b'L', "././@LongLink", long.as_bytes()),
                member(flag, &long, b""),
                member(flag, "a.d/2.txt", b"two"),
            ];
            let want = [("a.d/1".to_owned(), "one".to_owned()), ("a.d/2".to_owned(), "two".to_owned())];
            assert_eq!(texts(&*opened(&members)), want);
        }
    }
}
