//! The contract of every [`Decoder`], as a check that implementers call from their tests.

use std::{
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind},
    random::SampleRng,
    rows::Rows,
    types::{DType, Device, Layout},
};
use infeed_data::{FieldKind, Sample, Schema, Value};

use super::{ClassSet, Decoder, Finished, Item, Job, Outcome, Wait, Worker};
use crate::transform::{Lowered, Transform};

/// A worker that returns nothing for this long has hung.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes in the rows before a worker gets them. Two values show which bytes it did not write.
const FILLS: [u8; 2] = [0x5a, 0xa5];

/// Checks a CPU decoder with good samples of a schema, and with damaged copies of them.
///
/// - It has 1 to 32 classes, all on the CPU, at least one of which reads. Each sample is routed to at least one class.
/// - Each class makes all its workers.
/// - A job comes back once, with its tag, items and rows, and with one outcome for each item.
/// - Each sample is `Done` by some class. Then every byte of its image rows is written. Each worker writes the same
///   bytes, in any order of samples and whichever samples share the job. Rows of other fields stay unchanged.
/// - A class that returns `Elsewhere` does not name itself.
/// - A sample that could not be read fails with the error of its read; the samples next to it do not fail.
/// - Truncated and damaged files give outcomes, not panics, and the worker goes on.
///
/// Images are transformed by `transform` to `f32`, as NCHW and as NHWC. Takes about as long as decoding each sample
/// forty times with each class.
///
/// ```
/// use std::{num::NonZeroUsize, sync::Arc};
///
/// use infeed::{
///     Transform,
///     codec::codecs,
///     dataset::{Field, FieldKind, Sample, Schema, Value},
///     spi::{Cpu, decoder_contract},
/// };
///
/// # fn png() -> Vec<u8> {
/// #     let mut file = std::io::Cursor::new(Vec::new());
/// #     image::RgbImage::from_fn(9, 7, |x, y| image::Rgb([x as u8, y as u8, 9]))
/// #         .write_to(&mut file, image::ImageFormat::Png)
/// #         .unwrap();
/// #     file.into_inner()
/// # }
/// let kind = FieldKind::Image { channels: 3, size: None, dtype: None };
/// let schema = Schema::new(vec![Field::new("image", kind), Field::label()]);
/// let sample = Sample::new([Value::Encoded(png().into()), Value::Label(3)]);
/// let decoder = Cpu::new(NonZeroUsize::MIN, codecs(), 1 << 20);
/// decoder_contract(&decoder, &schema, &Transform::new().random_resized_crop(4).to_float(), &[sample]);
/// ```
///
/// # Panics
/// If the decoder breaks a promise; the message names the decoder and the number of the sample.
pub fn decoder_contract(decoder: &dyn Decoder, schema: &Schema, transform: &Transform, samples: &[Sample]) {
    let name = decoder.name();
    assert!(!samples.is_empty(), "{name}: the contract needs at least one sample");
    check_classes(decoder);
    for layout in [Layout::Nchw, Layout::Nhwc] {
        let fields = Fields::new(schema, transform, layout);
        // The rows of each sample, from the first class that did them.
        let mut known: Vec<Option<Vec<u8>>> = vec![None; samples.len()];
        for class in 0..decoder.classes().len() {
            Case { decoder, fields: &fields, samples, class }.check(&mut known);
        }
        let nobody = known.iter().position(Option::is_none);
        assert!(nobody.is_none(), "{name}: no class does sample {}", nobody.unwrap_or_default());
    }
    for (record, sample) in samples.iter().enumerate() {
        let there = ClassSet(u32::MAX >> (32 - decoder.classes().len() as u32));
        let mut item = Item::new(record as u64, SampleRng::new(7, 1, record as u64), Ok(sample.clone()));
        let route = decoder.route(&mut item).and(there);
        assert!(route != ClassSet::NONE, "{name}: sample {record} is routed to no class");
    }
}

fn check_classes(decoder: &dyn Decoder) {
    let (name, classes) = (decoder.name(), decoder.classes());
    assert!(!name.is_empty(), "a decoder without a name");
    assert!((1..=32).contains(&classes.len()), "{name}: {} classes; use 1 to 32", classes.len());
    assert!(classes.iter().any(|class| class.reads), "{name}: no class reads");
    for class in classes {
        assert!(!class.name.is_empty(), "{name}: a class without a name");
        assert!(class.device == Device::Cpu, "{name}: class {} makes rows on {}", class.name, class.device);
    }
}

/// The fields of a schema as a worker gets them.
struct Fields {
    programs: Arc<[Option<Lowered>]>,
    /// Bytes of one row of each field.
    row_bytes: Vec<usize>,
}

impl Fields {
    fn new(schema: &Schema, transform: &Transform, layout: Layout) -> Self {
        let lower = |field: &infeed_data::Field| match &field.kind {
            kind @ FieldKind::Image { .. } if field.mask => Some(transform.lower_mask(kind, layout)),
            kind @ FieldKind::Image { .. } => Some(transform.lower(kind, DType::F32, layout)),
            _ => None,
        };
        let fitted =
            |field| lower(field).transpose().unwrap_or_else(|error| panic!("the transform does not fit: {error}"));
        let programs: Arc<[_]> = schema.fields.iter().map(fitted).collect();
        // 8 bytes, as a label has: they represent the fields that the decoder must leave alone.
        let row_bytes = programs.iter().map(|program| program.as_ref().map_or(8, |p| p.row().len_bytes())).collect();
        Self { programs, row_bytes }
    }

    fn rows(&self, count: usize, fill: u8) -> Vec<Rows> {
        let rows = |bytes: &usize| {
            let mut rows = Rows::zeroed(count, *bytes).expect("rows of a few samples");
            rows.bytes_mut().fill(fill);
            rows
        };
        self.row_bytes.iter().map(rows).collect()
    }
}

/// One class of a decoder and the samples it is checked with.
struct Case<'a> {
    decoder: &'a dyn Decoder,
    fields: &'a Fields,
    samples: &'a [Sample],
    class: usize,
}

/// The result for one sample: its image rows, an error, or the classes that it is sent to.
#[derive(Debug)]
enum Became {
    Done(Vec<u8>),
    Failed(Error),
    Elsewhere,
}

impl Case<'_> {
    fn what(&self) -> String {
        format!("{}, class {}", self.decoder.name(), self.decoder.classes()[self.class].name)
    }

    fn worker(&self, n: usize) -> Box<dyn Worker> {
        let worker = self.decoder.worker(self.class, n, &self.fields.programs);
        worker.unwrap_or_else(|error| panic!("{}: worker {n} is not made: {error:#}", self.what()))
    }

    fn item(&self, record: usize) -> Item {
        let record_number = record as u64;
        Item::new(record_number, SampleRng::new(7, 1, record_number), Ok(self.samples[record].clone()))
    }

    fn check(&self, known: &mut [Option<Vec<u8>>]) {
        let workers = self.decoder.classes()[self.class].workers.get();
        let mut first = self.worker(0);
        let all: Vec<usize> = (0..self.samples.len()).collect();
        let together = vec![all.iter().map(|record| self.item(*record)).collect()];
        self.compare(&self.run(&mut *first, together, FILLS[0]), &all, known);
        drop(first);
        for n in 0..workers {
            let mut worker = self.worker(n);
            // Other bytes in the rows beforehand, another order, another number of samples per job.
            let reversed: Vec<usize> = all.iter().rev().copied().collect();
            let size = NonZeroUsize::new(n % 3 + 1).unwrap_or(NonZeroUsize::MIN).get();
            let jobs = reversed.chunks(size).map(|records| records.iter().map(|record| self.item(*record)).collect());
            let became = self.run(&mut *worker, jobs.collect(), FILLS[1]);
            self.compare(&became, &reversed, known);
            if n == 0 {
                self.check_unread(&mut *worker, known);
                self.check_damaged(worker, known);
            }
        }
    }

    fn compare(&self, became: &[Became], records: &[usize], known: &mut [Option<Vec<u8>>]) {
        for (became, record) in became.iter().zip(records) {
            match became {
                Became::Elsewhere => {}
                Became::Failed(error) => panic!("{}: sample {record} failed: {error:#}", self.what()),
                Became::Done(bytes) => {
                    let same = *known[*record].get_or_insert_with(|| bytes.clone()) == *bytes;
                    assert!(same, "{}: the row of sample {record} differs the second time", self.what());
                }
            }
        }
    }

    /// A sample that could not be read, between two that could.
    fn check_unread(&self, worker: &mut dyn Worker, known: &mut [Option<Vec<u8>>]) {
        let unread = Error::new(ErrorKind::Io, "the file was not read");
        let item = Item { sample: Err(unread.clone()), ..self.item(0) };
        let became = self.run(worker, vec![vec![self.item(0), item, self.item(0)]], FILLS[0]);
        match &became[1] {
            Became::Failed(error) if error.kind() == unread.kind() => {}
            other => panic!("{}: a sample that was not read became {other:?}", self.what()),
        }
        self.compare(&became[..1], &[0], known);
        self.compare(&became[2..], &[0], known);
    }

    fn check_damaged(&self, mut worker: Box<dyn Worker>, known: &mut [Option<Vec<u8>>]) {
        for record in 0..self.samples.len() {
            for n in 0..24 {
                let sample = damaged(&self.samples[record], n);
                let item = Item { sample: Ok(sample), ..self.item(record) };
                let run = AssertUnwindSafe(|| self.run(&mut *worker, vec![vec![item]], FILLS[n as usize % 2]));
                assert!(catch_unwind(run).is_ok(), "{}: panics on damaged copy {n} of sample {record}", self.what());
            }
            let again = self.run(&mut *worker, vec![vec![self.item(record)]], FILLS[0]);
            self.compare(&again, &[record], known);
        }
    }

    /// Submits the jobs as the engine does, and returns the results of all their items, in order.
    fn run(&self, worker: &mut dyn Worker, jobs: Vec<Vec<Item>>, fill: u8) -> Vec<Became> {
        let depth = self.decoder.classes()[self.class].batch.get();
        let records: Vec<Vec<u64>> = jobs.iter().map(|items| items.iter().map(|item| item.record).collect()).collect();
        let mut became: Vec<Option<Vec<Became>>> = jobs.iter().map(|_| None).collect();
        let (mut waiting, mut in_work) = (jobs.into_iter().enumerate(), 0);
        let began = Instant::now();
        loop {
            while in_work < depth
                && let Some((tag, items)) = waiting.next()
            {
                let rows = self.fields.rows(items.len(), fill);
                worker.submit(Job::new(tag as u64, items, rows));
                in_work += 1;
            }
            if in_work == 0 {
                break;
            }
            let finished = worker.poll(if in_work < depth { Wait::Now } else { Wait::Block });
            let finished = if finished.is_empty() { worker.poll(Wait::Block) } else { finished };
            for finished in finished {
                let tag = usize::try_from(finished.job.tag).ok().filter(|tag| *tag < became.len());
                let tag = tag.unwrap_or_else(|| panic!("{}: a job with an unknown tag", self.what()));
                let twice = became[tag].replace(self.read(&finished, &records[tag], fill)).is_some();
                assert!(!twice, "{}: a job comes back twice", self.what());
                in_work -= 1;
            }
            assert!(began.elapsed() < PATIENCE, "{}: a job does not come back", self.what());
        }
        became.into_iter().flatten().flatten().collect()
    }

    fn read(&self, finished: &Finished, records: &[u64], fill: u8) -> Vec<Became> {
        let Finished { job, outcomes, .. } = finished;
        let what = self.what();
        let same: Vec<u64> = job.items.iter().map(|item| item.record).collect();
        assert!(same == records, "{what}: a job of records {records:?} comes back with {same:?}");
        assert!(outcomes.len() == records.len(), "{what}: {} outcomes for {} items", outcomes.len(), records.len());
        let shapes: Vec<(usize, usize)> = job.rows.iter().map(|rows| (rows.rows(), rows.row_bytes())).collect();
        let given: Vec<_> = self.fields.row_bytes.iter().map(|bytes| (records.len(), *bytes)).collect();
        assert!(shapes == given, "{what}: rows {given:?} come back as {shapes:?}");
        for (rows, program) in job.rows.iter().zip(&*self.fields.programs) {
            let alone = program.is_some() || rows.bytes().iter().all(|byte| *byte == fill);
            assert!(alone, "{what}: writes a field that is not an image");
        }
        let row = |row: usize| {
            let images = job.rows.iter().zip(&*self.fields.programs).filter(|(_, program)| program.is_some());
            images.flat_map(|(rows, _)| rows.bytes()[row * rows.row_bytes()..][..rows.row_bytes()].to_vec()).collect()
        };
        let became = |(at, outcome): (usize, &Outcome)| match outcome {
            Outcome::Done => Became::Done(row(at)),
            Outcome::Failed(error) => Became::Failed(error.clone()),
            Outcome::Elsewhere(classes) => {
                assert!(!classes.contains(self.class), "{what}: sends a sample elsewhere and names itself");
                Became::Elsewhere
            }
        };
        outcomes.iter().enumerate().map(became).collect()
    }
}

/// A copy of a sample whose files are truncated or have a few changed bytes.
fn damaged(sample: &Sample, n: u64) -> Sample {
    let mut draws = SampleRng::new(7, 0, n).op(0);
    let mut hurt = |file: &Bytes| {
        let mut file = file.to_vec();
        match n % 3 {
            0 => file.truncate(draws.below(file.len().max(1) as u64) as usize),
            _ if file.is_empty() => {}
            _ => {
                for _ in 0..=draws.below(4) {
                    // Headers are a small part of a file and the larger part of a decoder's code.
                    let reach = if draws.chance(0.5) { file.len().min(700) } else { file.len() };
                    let at = draws.below(reach as u64) as usize;
                    file[at] ^= 1 << draws.below(8);
                }
            }
        }
        Bytes::from(file)
    };
    let values = sample.values.iter().map(|value| match value {
        Value::Encoded(file) => Value::Encoded(hurt(file)),
        Value::Channels(files) => Value::Channels(files.iter().map(&mut hurt).collect()),
        other => other.clone(),
    });
    Sample::new(values.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Class, Cpu};
    use infeed_core::{error::Result, types::ImageInfo};
    use infeed_data::Field;

    fn schema() -> Schema {
        let image = FieldKind::Image { channels: 3, size: None, dtype: None };
        let mask = FieldKind::Image { channels: 1, size: None, dtype: None };
        Schema::new(vec![Field::new("image", image), Field::mask("mask", mask), Field::label()])
    }

    fn samples() -> Vec<Sample> {
        let pixels = |info: ImageInfo, n: u8| {
            let data: Vec<u8> = (0..info.len_bytes()).map(|i| (i as u8).wrapping_mul(n)).collect();
            Value::Pixels { info, data: data.into() }
        };
        let sample = |n: u8| {
            let size = (10 + u32::from(n), 12);
            let image = pixels(ImageInfo::interleaved_u8(size.0, size.1, 3), n);
            Sample::new([
                image,
                pixels(ImageInfo::interleaved_u8(size.0, size.1, 1), n + 1),
                Value::Label(i64::from(n)),
            ])
        };
        (1..5).map(sample).collect()
    }

    fn transform() -> Transform {
        Transform::new().random_resized_crop(6).horizontal_flip(0.5).to_float()
    }

    fn cpu() -> Cpu {
        Cpu::new(NonZeroUsize::new(3).unwrap(), [], 1 << 20)
    }

    #[test]
    fn the_cpus_decoder_keeps_the_contract_for_pixels_and_masks() {
        decoder_contract(&cpu(), &schema(), &transform(), &samples());
    }

    /// How a decoder breaks its promises.
    #[derive(Clone, Copy, Debug)]
    enum Fault {
        NoClass,
        OtherDevice,
        LeavesBytes,
        WritesLabels,
        LosesAnOutcome,
        OtherTag,
        OtherOrder,
        DoesTheUnread,
        AsksItself,
        NeverDoes,
        Panics,
        Routes,
    }

    #[derive(Debug)]
    struct Faulty(Cpu, Fault, Vec<Class>);

    struct FaultyWorker(Box<dyn Worker>, Fault);

    impl Decoder for Faulty {
        fn name(&self) -> &'static str {
            "faulty"
        }
        fn classes(&self) -> &[Class] {
            &self.2
        }
        fn route(&self, _item: &mut Item) -> ClassSet {
            if matches!(self.1, Fault::Routes) { ClassSet(1 << 7) } else { ClassSet::ALL }
        }
        fn scratch_bytes(&self, class: usize) -> u64 {
            self.0.scratch_bytes(class)
        }
        fn worker(&self, class: usize, n: usize, programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>> {
            Ok(Box::new(FaultyWorker(self.0.worker(class, n, programs)?, self.1)))
        }
    }

    impl Worker for FaultyWorker {
        fn submit(&mut self, mut job: Job) {
            if let (Fault::DoesTheUnread, [item, ..]) = (self.1, &job.items[..]) {
                let good = item.sample.clone();
                job.items.iter_mut().filter(|item| item.sample.is_err()).for_each(|item| item.sample = good.clone());
            }
            self.0.submit(job);
        }
        fn poll(&mut self, wait: Wait) -> Vec<Finished> {
            let mut all = self.0.poll(wait);
            for Finished { job, outcomes, .. } in &mut all {
                match self.1 {
                    Fault::LeavesBytes => job.rows[0].bytes_mut()[5] = if job.items.len() == 4 { 1 } else { 2 },
                    Fault::WritesLabels => job.rows[2].bytes_mut()[0] = 0,
                    Fault::LosesAnOutcome => drop(outcomes.pop()),
                    Fault::OtherTag => job.tag += 9,
                    Fault::OtherOrder => job.items.reverse(),
                    Fault::AsksItself => outcomes[0] = Outcome::Elsewhere(ClassSet::ALL),
                    Fault::NeverDoes => {
                        let done = outcomes.iter_mut().filter(|outcome| matches!(outcome, Outcome::Done));
                        done.for_each(|outcome| *outcome = Outcome::Elsewhere(ClassSet::ALL.without(0)));
                    }
                    Fault::Panics if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Failed(_))) => {
                        panic!("told to")
                    }
                    _ => {}
                }
            }
            all
        }
    }

    #[test]
    fn a_broken_promise_is_named() {
        for (fault, want) in [
            (Fault::NoClass, "0 classes"),
            (Fault::OtherDevice, "makes rows on cuda:3"),
            (Fault::LeavesBytes, "the row of sample 3 differs the second time"),
            (Fault::WritesLabels, "writes a field that is not an image"),
            (Fault::LosesAnOutcome, "3 outcomes for 4 items"),
            (Fault::OtherTag, "an unknown tag"),
            (Fault::OtherOrder, "comes back with [3, 2, 1, 0]"),
            (Fault::DoesTheUnread, "a sample that was not read became Done"),
            (Fault::AsksItself, "names itself"),
            (Fault::NeverDoes, "no class does sample 0"),
            (Fault::Panics, "told to"),
            (Fault::Routes, "sample 0 is routed to no class"),
        ] {
            let mut classes = vec![Class::new("only", Device::Cpu, NonZeroUsize::MIN)];
            match fault {
                Fault::NoClass => classes.clear(),
                Fault::OtherDevice => classes[0].device = Device::Cuda(3),
                _ => {}
            }
            let faulty = Faulty(cpu(), fault, classes);
            let check = AssertUnwindSafe(|| decoder_contract(&faulty, &schema(), &transform(), &samples()));
            let said = catch_unwind(check).expect_err("a broken promise");
            let said =
                said.downcast_ref::<String>().cloned().or_else(|| said.downcast_ref::<&str>().map(|s| (*s).into()));
            assert!(said.as_ref().is_some_and(|said| said.contains(want)), "{fault:?}: {said:?}");
        }
    }
}
