//! Lists a folder of many objects in several ranges of names at a time.
//!
//! ```text
//! one range, page after page ─ 16 pages, and more to come ─▶ split ─▶ ranges, up to 16 at a time, page by page
//!                                                            ▲            └ few are left, and one is long ┐
//!                                                            └────────────────────────────────────────────┘
//! ```
//!
//! A store lists from any name on, whether there is such an object or not. Names to start from are guessed from the
//! names so far: the first position at which later names differ, and evenly spaced digits or letters from there on. A
//! bad guess costs requests, never an object: a range ends with the name after which the next one starts.
//!
//! This needs a store that lists a folder in byte order. One that does not, or that ignores from where on to list, is
//! found by the names on its pages, and is listed page after page. All stores known here list the objects of one folder
//! in byte order; they differ in where they place its subfolders, which are listed by themselves.

use futures::{StreamExt, TryStreamExt, stream, stream::BoxStream, stream::FuturesUnordered};
use infeed_core::error::{Error, ErrorKind};
use object_store::{ListResult, Result, list::PaginatedListResult};

use super::{
    keys::Pages as Seen,
    pages::{Pages, WIDTH, wrap},
};

/// Pages of a range after which it is split: splitting takes as long as about ten pages one after another.
const WORTH: usize = 16;
/// The most names that are guessed at a time, for a folder and for one of its ranges. With twice as many ranges as
/// requests at a time, a long one matters less.
const GUESSES: [u64; 2] = [31, 7];
/// How often names are guessed, each time nearer to the existing ones.
const ROUNDS: usize = 4;
/// Characters of a guess in which names differ.
const DIGITS: u32 = 4;

const DECIMAL: &[u8] = b"0123456789";
const HEXADECIMAL: &[u8] = b"0123456789abcdef";
const ALPHANUMERIC: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Sorts after each of these characters, and is one byte.
const LAST: char = '~';

/// Some of a folder's names, in the order of the store.
struct Range {
    /// The name before the first, as a key; empty: none.
    after: String,
    /// The last name that may be in the range, as a key.
    until: Option<String>,
    /// A page that was requested for a guess.
    page: Option<PaginatedListResult>,
    token: Option<String>,
    /// The last key so far.
    last: String,
    /// Pages until the range is worth a split.
    wait: usize,
    /// How many pages to wait after a split that was of no use.
    patience: usize,
    seen: Seen,
}

impl Range {
    fn new(after: String, page: PaginatedListResult) -> Self {
        let (last, seen) = (after.clone(), Seen::default());
        Self { after, until: None, page: Some(page), token: None, last, wait: WORTH, patience: WORTH, seen }
    }

    async fn next(mut self, bucket: impl Pages, folder: String) -> Result<(Self, PaginatedListResult)> {
        let page = match self.page.take() {
            Some(page) => page,
            None => bucket.page(folder, None, self.token.take(), true).await?,
        };
        Ok((self, page))
    }

    /// Leaves on the page what belongs to the range. Returns whether there are more pages, and whether the page is in
    /// byte order.
    fn add(&mut self, folder: &str, page: &mut PaginatedListResult) -> Result<[bool; 2], Error> {
        let ListResult { objects, common_prefixes, .. } = &mut page.result;
        let entries = objects.len() + common_prefixes.len();
        let mut is_ordered = true;
        for object in &*objects {
            let key = object.location.as_ref();
            is_ordered &= key > &*self.last || self.last.is_empty();
            key.clone_into(&mut self.last);
        }
        let mut has_more = true;
        if let Some(until) = &self.until {
            objects.retain(|object| object.location.as_ref() <= until.as_str());
            common_prefixes.retain(|path| *until > format!("{path}/"));
            has_more = entries == objects.len() + common_prefixes.len();
        }
        common_prefixes.retain(|path| self.after < format!("{path}/"));
        if let Some(token) = page.page_token.take().filter(|_| has_more) {
            self.seen.next(folder, entries, &token)?;
            self.token = Some(token);
        }
        self.wait = self.wait.saturating_sub(1);
        Ok([self.token.is_some(), is_ordered])
    }

    const fn is_part(&self) -> bool {
        self.until.is_some() || !self.after.is_empty()
    }
}

/// The pages of a folder, of which `first` is the first.
pub(super) fn list(
    bucket: impl Pages,
    folder: String,
    first: PaginatedListResult,
) -> BoxStream<'static, Result<ListResult>> {
    async_stream::try_stream! {
        let mut waiting = vec![Range::new(String::new(), first)];
        let mut running = FuturesUnordered::new();
        let mut may_split = bucket.starts_anywhere();
        loop {
            while running.len() < WIDTH && let Some(range) = waiting.pop() {
                running.push(range.next(bucket.clone(), folder.clone()));
            }
            let Some((mut range, mut page)) = running.try_next().await? else { break };
            let [has_more, is_ordered] = range.add(&folder, &mut page).map_err(wrap)?;
            if !is_ordered && range.is_part() {
                Err(wrap(out_of_order(&folder, &range.last)))?;
            }
            may_split &= is_ordered;
            yield page.result;
            if !has_more {
                continue;
            }
            if may_split && range.wait == 0 && running.len() + waiting.len() < WIDTH / 2 {
                match split(&bucket, &folder, &mut range).await? {
                    Some(others) => waiting.extend(others),
                    None => may_split = false,
                }
            }
            waiting.push(range);
        }
    }
    .boxed()
}

fn out_of_order(folder: &str, key: &str) -> Error {
    let what = format!("the listing of {folder:?} is not in the order of names: {key:?} comes after a later one");
    Error::new(ErrorKind::Io, what)
        .with_hint("list again; if that fails, the store or a proxy in front of it is broken")
}

/// The page after a key.
struct Guess {
    after: String,
    page: PaginatedListResult,
    /// The first key on the page, if it belongs to the range.
    first: Option<String>,
}

/// Ends the range at a guessed name, and returns ranges from there on: none if nothing is gained. `None` if the store
/// ignores from where on to list, or does not list in byte order.
async fn split(bucket: &impl Pages, folder: &str, range: &mut Range) -> Result<Option<Vec<Range>>> {
    // In case nothing is found.
    range.patience *= 2;
    range.wait = range.patience;
    let last = range.last.clone();
    let Some(name) = last.strip_prefix(folder) else { return Ok(Some(Vec::new())) };
    // Where names differ must be cut between characters.
    let name = &name[..name.bytes().take_while(u8::is_ascii).count()];
    let until = range.until.clone();
    let guess = async |after: String| {
        let page = bucket.page(folder.to_owned(), Some(after.clone()), None, true).await?;
        let objects = page.result.objects.iter().map(|object| object.location.as_ref().to_owned());
        let keys = objects.chain(page.result.common_prefixes.iter().map(|path| format!("{path}/")));
        let first = keys.min();
        let is_sound = first.as_ref().is_none_or(|first| *first > after);
        let first = first.filter(|first| until.as_ref().is_none_or(|until| first <= until));
        Ok::<_, object_store::Error>(is_sound.then_some(Guess { after, page, first }))
    };
    // The first position at which a later name differs from the last one so far.
    let (mut depth, mut end, mut sibling) = (0, name.len(), None);
    while depth < end {
        let middle = usize::midpoint(depth, end);
        let key = format!("{folder}{}{LAST}", &name[..=middle]);
        // What follows in the name sorts after `LAST`: from there on come names that were listed.
        if key <= last {
            depth = middle + 1;
            continue;
        }
        let Some(found) = guess(key).await? else { return Ok(None) };
        match found.first {
            Some(_) => (end, sibling) = (middle, Some(found)),
            None => depth = middle + 1,
        }
    }
    let Some(sibling) = sibling else { return Ok(Some(Vec::new())) };
    let names = [name, sibling.first.as_deref().and_then(|key| key.strip_prefix(folder)).unwrap_or_default()];
    let differ: Vec<&[u8]> = names.iter().map(|name| name.as_bytes().get(depth..).unwrap_or_default()).collect();
    let is_of = |letters: &[u8]| {
        let words = differ.iter().flat_map(|name| name.iter().take_while(|byte| byte.is_ascii_alphanumeric()));
        words.copied().all(|byte| letters.contains(&byte))
    };
    let letters = [DECIMAL, HEXADECIMAL].into_iter().find(|letters| is_of(letters)).unwrap_or(ALPHANUMERIC);
    let base = letters.len() as u64;
    let digit = |byte: u8| letters.partition_point(|letter| *letter < byte).min(letters.len() - 1) as u64;
    let start = (0..DIGITS as usize).fold(0, |value, i| value * base + differ[0].get(i).map_or(0, |byte| digit(*byte)));
    let key = |value: u64| {
        let digits = (0..DIGITS).rev().map(|i| letters[(value / base.pow(i) % base) as usize] as char);
        format!("{folder}{}{}", &name[..depth], digits.collect::<String>())
    };
    let mut end = base.pow(DIGITS);
    let mut found = vec![sibling];
    let guesses = GUESSES[usize::from(range.is_part())];
    for _ in 0..ROUNDS {
        let values: Vec<u64> = (1..=guesses).map(|i| start + (end - start) * i / (guesses + 1)).collect();
        let is_new = |key: &String| {
            *key > last
                && until.as_ref().is_none_or(|until| key < until)
                && found.iter().all(|known| known.after != *key)
        };
        let mut keys: Vec<(u64, String)> = values.into_iter().map(|value| (value, key(value))).collect();
        keys.dedup();
        keys.retain(|(_, key)| is_new(key));
        let asked = keys.into_iter().map(async |(value, key)| Ok::<_, object_store::Error>((value, guess(key).await?)));
        let pages: Vec<_> = stream::iter(asked.collect::<Vec<_>>()).buffer_unordered(WIDTH).try_collect().await?;
        let count = found.len();
        for (value, page) in pages {
            match page {
                None => return Ok(None),
                Some(page) if page.first.is_some() => found.push(page),
                Some(_) => end = end.min(value),
            }
        }
        if found.len() - count > guesses as usize / 2 || end <= start + 1 {
            break;
        }
    }
    found.sort_unstable_by(|a, b| a.after.cmp(&b.after));
    let mut others: Vec<Range> = found.into_iter().map(|guess| Range::new(guess.after, guess.page)).collect();
    let starts: Vec<String> = others.iter().map(|range| range.after.clone()).collect();
    for (range, next) in others.iter_mut().zip(starts[1..].iter().cloned().map(Some).chain([until])) {
        range.until = next;
    }
    (range.until, range.patience, range.wait) = (Some(starts[0].clone()), WORTH, WORTH);
    Ok(Some(others))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use futures::executor::block_on;
    use object_store::{ObjectMeta, path::Path};
    use tokio::time::Instant;

    use super::{super::folders, *};

    /// A bucket with these keys, in the order in which it lists them, ten a page.
    #[derive(Clone)]
    struct Bucket {
        keys: Arc<Vec<String>>,
        ignores_after: bool,
        requests: Arc<AtomicUsize>,
    }

    impl Bucket {
        fn new(keys: impl IntoIterator<Item = String>) -> Self {
            let keys: BTreeSet<String> = keys.into_iter().collect();
            Self { keys: Arc::new(keys.into_iter().collect()), ignores_after: false, requests: Arc::default() }
        }
    }

    impl Pages for Bucket {
        fn starts_anywhere(&self) -> bool {
            true
        }

        async fn page(
            &self,
            prefix: String,
            after: Option<String>,
            token: Option<String>,
            folders: bool,
        ) -> Result<PaginatedListResult> {
            self.requests.fetch_add(1, Ordering::Relaxed);
            if tokio::runtime::Handle::try_current().is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let after = after.filter(|_| !self.ignores_after);
            let start = token.map_or(0, |token| token.parse().unwrap());
            let (mut result, mut next, mut entries) =
                (ListResult { objects: vec![], common_prefixes: vec![], extensions: Default::default() }, None, 0);
            for (at, key) in self.keys.iter().enumerate().skip(start) {
                let Some(name) = key.strip_prefix(&prefix) else { continue };
                if after.as_ref().is_some_and(|after| key <= after) {
                    continue;
                }
                let folder = name.split_once('/').filter(|_| folders);
                let folder = folder.map(|(folder, _)| Path::parse(format!("{prefix}{folder}")).unwrap());
                // A store names a folder once, whatever page its keys would be on.
                if folder.is_some() && folder.as_ref() == result.common_prefixes.last() {
                    continue;
                }
                if entries == 10 {
                    next = Some(at.to_string());
                    break;
                }
                match folder {
                    Some(path) => {
                        result.common_prefixes.push(path);
                        entries += 1;
                    }
                    None => {
                        let location = Path::parse(key).unwrap();
                        let last_modified = std::time::SystemTime::UNIX_EPOCH.into();
                        result.objects.push(ObjectMeta {
                            location,
                            last_modified,
                            size: 1,
                            e_tag: None,
                            version: None,
                        });
                        entries += 1;
                    }
                }
            }
            Ok(PaginatedListResult { result, page_token: next })
        }
    }

    /// All keys below `a/`, sorted; an error if one comes twice.
    async fn listed(bucket: &Bucket) -> Result<Vec<String>> {
        let found: Vec<ObjectMeta> = folders::list(bucket.clone(), "a/".into()).try_collect().await?;
        let keys: BTreeSet<String> = found.iter().map(|meta| meta.location.to_string()).collect();
        assert_eq!(keys.len(), found.len(), "no key comes twice");
        Ok(keys.into_iter().collect())
    }

    fn hash(i: usize) -> u128 {
        xxhash_rust::xxh3::xxh3_128(&i.to_le_bytes())
    }

    #[tokio::test(start_paused = true)]
    async fn a_flat_folder_is_listed_in_ranges_whatever_its_names_are() {
        type Name = fn(usize) -> String;
        let names: [(&str, Name); 12] = [
            ("padded", |i| format!("{i:08}.jpg")),
            ("padded, a long beginning", |i| format!("ILSVRC2012_val_{i:08}.JPEG")),
            ("not padded", |i| format!("img_{i}.png")),
            ("hexadecimal", |i| format!("{:032x}.jpg", hash(i))),
            ("upper case", |i| format!("{:032X}.jpg", hash(i))),
            ("two families", |i| if i < 4_000 { format!("left_{i:06}.jpg") } else { format!("right_{i:06}.jpg") }),
            ("several files a record", |i| format!("{:06}.{}", i / 3, ["cls", "jpg", "txt"][i % 3])),
            ("an accent at the end", |i| format!("Bild {i:05} ü.jpg")),
            ("tildes", |i| format!("~~~{i:06}~.jpg")),
            ("a word of Greek in the middle", |i| format!("x-εικόνα_{i:06}.jpg")),
            ("letters of Greek", |i| format!("εικόνα_{i:06}.jpg")),
            ("with spaces", |i| format!("photo {:05} ({}).jpg", i / 2, i % 2)),
        ];
        for (what, name) in names {
            let bucket = Bucket::new((0..10_000).map(|i| format!("a/{}", name(i))).chain(["b".into(), "a0".into()]));
            let start = Instant::now();
            let found = listed(&bucket).await.unwrap();
            assert!(found.iter().eq(bucket.keys.iter().filter(|key| key.starts_with("a/"))), "{what}");
            let (pages, requests) = (start.elapsed().as_millis() / 50, bucket.requests.load(Ordering::Relaxed));
            // A thousand pages.
            let is_guessed = !what.contains("Greek");
            assert!(!is_guessed || pages < 250, "{what}: as long as {pages} pages");
            assert!(requests < 1_200, "{what}: {requests} requests");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn few_pages_are_listed_one_after_another_and_a_changing_folder_too() {
        for count in [0, 1, 9, 10, 11, 160, 161, 199] {
            let bucket = Bucket::new((0..count).map(|i| format!("a/{i:04}")));
            assert_eq!(listed(&bucket).await.unwrap().len(), count);
            assert!(bucket.requests.load(Ordering::Relaxed) <= 90, "{count}");
        }
        let folders = (0..50).flat_map(|folder| (0..3).map(move |i| format!("a/{:04}/{i}", folder * 97)));
        let bucket = Bucket::new((0..5_000).map(|i| format!("a/{i:04}.jpg")).chain(folders));
        assert!(listed(&bucket).await.unwrap().iter().eq(bucket.keys.iter()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_without_an_order_or_that_starts_at_the_beginning_is_listed_page_after_page() {
        let keys = || (0..2_000).map(|i| format!("a/{i:05}"));
        let bucket = Bucket { ignores_after: true, ..Bucket::new(keys()) };
        assert!(listed(&bucket).await.unwrap().iter().eq(bucket.keys.iter()));
        let bucket = Bucket::new(keys());
        let mut shuffled = bucket.keys.to_vec();
        shuffled.sort_by_key(|key| xxhash_rust::xxh3::xxh3_64(key.as_bytes()));
        let shuffled = Bucket { keys: Arc::new(shuffled), ..bucket.clone() };
        assert!(listed(&shuffled).await.unwrap().iter().eq(bucket.keys.iter()));
        // Out of order only after the split.
        let mut late = bucket.keys.to_vec();
        late.swap(1_501, 1_505);
        let error = listed(&Bucket { keys: Arc::new(late), ..bucket.clone() }).await.unwrap_err();
        assert!(
            std::error::Error::source(&error).unwrap().to_string().contains("not in the order of names"),
            "{error}"
        );
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(100))]

        #[test]
        fn no_key_is_lost_or_listed_twice(
            all in "(x-|~|~~|ü|a~ü|Z)?",
            names in proptest::collection::btree_set("[a-c0-2~ü]{1,6}(/[ab]{1,2})?", 100..600),
        ) {
            let bucket = Bucket::new(names.iter().map(|name| format!("a/{all}{name}")));
            let found = block_on(listed(&bucket)).unwrap();
            proptest::prop_assert!(found.iter().eq(bucket.keys.iter()));
        }
    }
}
