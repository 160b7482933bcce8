//! Tensors on a GPU that are lent to others and taken from them: nobody uses the memory while somebody else reads it.

use std::{
    ffi::c_void,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use dlpark::ffi::{DLDataType, DLDevice, DLManagedTensorVersioned, DLPackVersion, DLTensor};
use infeed::{
    DType, Device, Loader, Tensor, Transform,
    device::{CudaStream, Dlpack, DlpackAbi},
    open,
};

use super::{Gpu, ok};
use crate::support::mock::on_mock;

const LEN: usize = 64;

/// What a library lends: `LEN` bytes on the GPU.
struct Lent {
    managed: DLManagedTensorVersioned,
    shape: [i64; 2],
    strides: [i64; 2],
    returned: Arc<AtomicUsize>,
}

unsafe extern "C" fn take_back(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: alive until here.
    let lent = unsafe { (*managed).manager_ctx }.cast::<Lent>();
    // SAFETY: made by `Box::into_raw` below.
    let lent = unsafe { Box::from_raw(lent) };
    lent.returned.fetch_add(1, Ordering::SeqCst);
}

fn lend(memory: u64, device: i32) -> (Dlpack, Arc<AtomicUsize>) {
    let returned = Arc::new(AtomicUsize::new(0));
    let tensor = DLTensor {
        data: memory as *mut c_void,
        device: DLDevice::cuda(device),
        ndim: 2,
        dtype: DLDataType::U8,
        ..DLTensor::default()
    };
    let lent = Box::into_raw(Box::new(Lent {
        managed: DLManagedTensorVersioned {
            version: DLPackVersion::CURRENT,
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(take_back),
            flags: dlpark::DlpackFlags::empty(),
            dl_tensor: tensor,
        },
        shape: [4, LEN as i64 / 4],
        strides: [LEN as i64 / 4, 1],
        returned: Arc::clone(&returned),
    }));
    // SAFETY: ours alone until `from_raw`.
    let fields = unsafe { &mut *lent };
    fields.managed.manager_ctx = lent.cast();
    fields.managed.dl_tensor.shape = fields.shape.as_mut_ptr();
    fields.managed.dl_tensor.strides = fields.strides.as_mut_ptr();
    let managed = (&raw mut fields.managed).cast();
    // SAFETY: a managed tensor that nobody else has, over memory that the test keeps.
    (unsafe { Dlpack::from_raw(DlpackAbi::Versioned, managed) }.unwrap(), returned)
}

/// A stream that lives longer than the tensors of its test.
fn reader(stream: cudarc::driver::sys::CUstream) -> CudaStream {
    // SAFETY: each test destroys its streams at its end.
    unsafe { CudaStream::from_raw(stream.cast()) }
}

#[test]
fn foreign_device_memory_is_complete_when_taken_and_its_library_waits_for_our_readers() {
    let test = "mock::dlpack::foreign_device_memory_is_complete_when_taken_and_its_library_waits_for_our_readers";
    on_mock(test, &[], |_| {
        let gpu = Gpu::new();
        let (home, other) = (gpu.stream(), gpu.stream());
        let (memory, copy) = (gpu.memory(LEN), gpu.memory(LEN));
        gpu.fill(memory, 7, LEN, home);
        let (dlpack, returned) = lend(memory, 0);
        let tensor = Tensor::from_dlpack_on(dlpack, reader(home)).unwrap();
        assert_eq!((tensor.shape(), tensor.dtype(), tensor.device()), (&[4, 16][..], DType::U8, Device::Cuda(0)));
        // On a stream that knows nothing of `home`.
        assert_eq!(tensor.to_host().unwrap().bytes(), Some(&[7; LEN][..]));

        let at = tensor.device_ptr(reader(other)).unwrap().as_raw();
        assert_eq!(at, memory);
        ok!(cuMemcpyDtoDAsync_v2(copy, at, LEN, other));
        drop(tensor);
        assert_eq!(returned.load(Ordering::SeqCst), 1);
        // The library uses its memory again, in order of its own stream.
        gpu.fill(memory, 9, LEN, home);
        gpu.wait(home);
        assert_eq!(gpu.read(copy, LEN, other), [7; LEN]);
        gpu.free(&[home, other], &[], &[memory, copy]);
        gpu.end();
    });
}

#[test]
fn a_tensor_of_a_gpu_that_is_not_there_is_given_back() {
    on_mock("mock::dlpack::a_tensor_of_a_gpu_that_is_not_there_is_given_back", &[], |_| {
        let gpu = Gpu::new();
        let (stream, memory) = (gpu.stream(), gpu.memory(LEN));
        let (dlpack, returned) = lend(memory, 5);
        let error = Tensor::from_dlpack_on(dlpack, reader(stream)).unwrap_err();
        assert!(error.to_string().contains("no cuda:5"), "{error}");
        assert_eq!(returned.load(Ordering::SeqCst), 1);
        gpu.free(&[stream], &[], &[memory]);
        gpu.end();
    });
}

#[test]
fn memory_of_a_lent_batch_is_not_reused_before_its_stream_got_there() {
    let test = "mock::dlpack::memory_of_a_lent_batch_is_not_reused_before_its_stream_got_there";
    on_mock(test, &[], |_| {
        let gpu = Gpu::new();
        let (stream, mut copies) = (gpu.stream(), Vec::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let dataset = runtime.block_on(async { open("synthetic://?count=96&height=6&width=6").await }).unwrap();
        let loader = Loader::builder(dataset)
            .batch_size(8)
            .transform(Transform::new().resize_exact(4, 4))
            .dtype(DType::F32)
            .device(Device::Cuda(0))
            .prefetch(1)
            .build_blocking()
            .unwrap();
        // Often: a buffer may come free between a look at it and the wait for it, and then nobody waits for it.
        for batch in loader.epochs(0..20).blocking() {
            let batch = batch.unwrap();
            let image = &batch["image"];
            assert_eq!(image.device(), Device::Cuda(0));
            let expected = image.to_host().unwrap();
            assert!(image.to_dlpack(DlpackAbi::Versioned).is_err(), "a stream must be named");
            let managed = image.to_dlpack_on(DlpackAbi::Versioned, reader(stream)).unwrap();
            drop(batch);
            // A consumer queues a copy, lets the tensor go, and waits for nothing.
            let raw = managed.into_raw().cast::<DLManagedTensorVersioned>();
            // SAFETY: it is ours until the deleter is called.
            let DLTensor { data, device, .. } = unsafe { (*raw).dl_tensor };
            assert_eq!(device, DLDevice::cuda(0));
            let len = expected.bytes().unwrap().len();
            let copy = gpu.memory(len);
            ok!(cuMemcpyDtoDAsync_v2(copy, data as u64, len, stream));
            // SAFETY: as above.
            let deleter = unsafe { (*raw).deleter }.unwrap();
            // SAFETY: once, by its owner.
            unsafe { deleter(raw) };
            copies.push((copy, expected));
        }
        assert_eq!(copies.len(), 20 * 12);
        for (copy, expected) in &copies {
            let bytes = expected.bytes().unwrap();
            assert!(gpu.read(*copy, bytes.len(), stream) == bytes, "the memory was written before it was read");
        }
        drop(loader);
        gpu.free(&[stream], &[], &copies.iter().map(|copy| copy.0).collect::<Vec<_>>());
        gpu.end();
    });
}
