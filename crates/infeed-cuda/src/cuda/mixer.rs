//! Mixes the rows of a batch with one another, in GPU memory.

use std::{
    ffi::{c_uint, c_void},
    fmt, ptr,
    sync::{Arc, Mutex, PoisonError},
};

use cudarc::driver::sys::CUfunction;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    rows::Rows,
    types::{DType, Layout},
};
use infeed_pixels::kernels::{self, Mixture, RowSpec, picture::DeviceMixing};

use super::{
    context::{DeviceMemory, Pinned, Priority, Stream},
    kernels::Kernels,
};

/// Threads per block, and most blocks: two rounds of eight blocks on each of the 132 SMs of an H200.
const THREADS: u32 = 256;
const BLOCKS: u64 = 2 * 8 * 132;

/// Mixes batches on one GPU, one at a time, on its own stream. Each call waits until the batch is mixed. 256 rows of
/// 224×224×3 f32, which are read and written once (308 MB), take about 0.1 ms of an H200's memory bandwidth.
pub struct Mixer {
    kernels: Arc<Kernels>,
    work: Mutex<Work>,
}

struct Work {
    // Dropped in this order. No call leaves work running.
    stream: Stream,
    items: DeviceMemory,
    pinned: Pinned,
}

impl Mixer {
    /// A mixer for batches of up to `batch_size` rows.
    ///
    /// # Errors
    /// `OutOfMemory` and `Device`, as CUDA reports them.
    pub fn new(kernels: &Arc<Kernels>, batch_size: usize) -> Result<Arc<Self>> {
        let context = kernels.context();
        // Load the kernels now, rather than during the first batch.
        kernels.pictures()?;
        // Room for the most pairs, and at least for the one item of a roll.
        let bytes = (batch_size / 2).max(1).saturating_mul(size_of::<DeviceMixing>());
        let (items, pinned) = (DeviceMemory::new(context, bytes)?, Pinned::new(context, bytes)?);
        let work = Work { stream: Stream::new(context, Priority::High)?, items, pinned };
        Ok(Arc::new(Self { kernels: Arc::clone(kernels), work: Mutex::new(work) }))
    }

    /// Mixes pairs of rows; without `pairs`, each row with the one before it.
    fn run(
        &self,
        rows: &Rows,
        spec: &RowSpec,
        items: &[DeviceMixing],
        samples: usize,
        pairs: Option<u32>,
    ) -> Result<()> {
        let wrong = |what: String| Error::new(ErrorKind::Internal, what).with_hint("please report this");
        let functions = self.kernels.pictures()?.rows(spec.dtype);
        let blends = items.iter().any(|item| item.paste == 0);
        let fits = samples <= rows.rows() && rows.row_bytes() == spec.len_bytes() && u32::try_from(samples).is_ok();
        let (Some(functions), true) = (functions, fits && !(blends && spec.dtype == DType::U8)) else {
            return Err(wrong(format!(
                "{samples} of {} rows of {} bytes to mix as {spec:?}",
                rows.rows(),
                rows.row_bytes()
            )));
        };
        rows.idle()?;
        let Some(start) = rows.on_device(0) else { return Err(wrong("rows to mix are not on the GPU".into())) };
        // Each critical section leaves the memory idle, so a poisoned lock is harmless.
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: &[u8] = bytemuck::cast_slice(items);
        // SAFETY: every call waits for its work before it releases the lock, so nothing reads the memory.
        let pinned = unsafe { work.pinned.bytes_mut() };
        let place = pinned.get_mut(..bytes.len()).ok_or_else(|| wrong(format!("{} pairs of a batch", items.len())))?;
        place.copy_from_slice(bytes);
        let writing = rows.writing();
        let function = if pairs.is_some() { functions.swap } else { functions.roll };
        let pairs = pairs.unwrap_or(1);
        let done = self.start(&work, bytes.len(), function, (start, spec), samples as u32, pairs);
        // Wait for all started work, as the memory is reused. If this fails, the GPU is lost.
        let ended = work.stream.sync();
        drop(writing);
        done.and(ended)
    }

    fn start(
        &self,
        work: &Work,
        len: usize,
        function: CUfunction,
        (start, spec): (u64, &RowSpec),
        samples: u32,
        pairs: u32,
    ) -> Result<()> {
        let context = self.kernels.context();
        let _bound = context.bind()?;
        let mut items = work.items.address();
        // SAFETY: both have at least this length, and live until `run` has waited for the stream.
        let code = unsafe {
            (context.driver().calls.cuMemcpyHtoDAsync_v2)(items, work.pinned.start().cast(), len, work.stream.raw())
        };
        context.check("cuMemcpyHtoDAsync", code)?;
        let mut start = start;
        let mut numbers: [c_uint; 5] =
            [samples, spec.height, spec.width, spec.channels, u32::from(spec.layout == Layout::Nhwc)];
        let [count, height, width, channels, nhwc] = &mut numbers;
        let mut arguments: [*mut c_void; 7] = [
            (&raw mut start).cast(),
            (&raw mut items).cast(),
            (&raw mut *count).cast(),
            (&raw mut *height).cast(),
            (&raw mut *width).cast(),
            (&raw mut *channels).cast(),
            (&raw mut *nhwc).cast(),
        ];
        let values = (spec.len_bytes() / spec.dtype.size()) as u64;
        let blocks = values.div_ceil(u64::from(THREADS)).clamp(1, BLOCKS) as u32;
        // SAFETY: the arguments are those of the kernel's signature, and the call copies them; the rows and the items
        // live until `run` has waited for the stream; it has checked that the rows of pairs exist.
        let code = unsafe {
            (context.driver().calls.cuLaunchKernel)(
                function,
                blocks,
                pairs,
                1,
                THREADS,
                1,
                1,
                0,
                work.stream.raw(),
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        context.check("cuLaunchKernel", code)
    }
}

impl kernels::Mixer for Mixer {
    fn roll(&self, rows: &mut Rows, spec: &RowSpec, mixture: &Mixture, samples: usize) -> Result<()> {
        if samples == 0 {
            return Ok(());
        }
        self.run(rows, spec, &[DeviceMixing::new(mixture, [0; 2])], samples, None)
    }

    fn swap(&self, rows: &mut Rows, spec: &RowSpec, pairs: &[(Mixture, [u32; 2])]) -> Result<()> {
        let items: Vec<DeviceMixing> = pairs.iter().map(|(mixture, pair)| DeviceMixing::new(mixture, *pair)).collect();
        // The most items of a launch.
        items.chunks(65_535).try_for_each(|items| {
            let samples = items.iter().flat_map(|item| item.pair).max().map_or(0, |last| last as usize + 1);
            self.run(rows, spec, items, samples, Some(items.len() as u32))
        })
    }
}

impl fmt::Debug for Mixer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mixer on {:?}", self.kernels.context())
    }
}
