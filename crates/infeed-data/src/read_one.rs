//! Reads one record for tests, as a loader does.

use futures::executor::block_on;
use infeed_core::error::Result;
use infeed_core::random::SampleRng;

use super::{Dataset, Sample};

#[doc(hidden)]
pub fn read(dataset: &dyn Dataset, record: u64) -> Result<Sample> {
    let plan = dataset.plan(record, SampleRng::new(0, 0, record))?;
    let mut bytes = plan.extents.iter().map(|extent| block_on(extent.read())).collect::<Result<Vec<_>>>()?;
    if plan.by_dataset.is_some() {
        bytes.extend(dataset.read(&[record]).remove(0)?);
    }
    for part in &plan.shared {
        let encoded = part.extents.iter().map(|extent| block_on(extent.read())).collect::<Result<Vec<_>>>()?;
        bytes.push(dataset.decode_shared(part.key, &encoded)?);
    }
    dataset.parse(record, &plan, &bytes)
}
