//! One copy from a batch to candle, counted by what it allocates.
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::Arc,
};

use candle_core::Device;
use infeed::{DType, Loader, dataset::MemoryDataset};
use infeed_candle::BatchExt;

/// Counts what each thread asks for.
struct Counting;

thread_local! {
    static ASKED: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Smaller ones are names and shapes.
const LARGE: usize = 64 * 1024;

// SAFETY: all is the system's own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (small, large) = ASKED.get();
        ASKED.set(if layout.size() < LARGE { (small + layout.size(), large) } else { (small, large + layout.size()) });
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as our caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_batch_is_copied_once() {
    const SIDE: u32 = 64;
    let pixels = 3 * (SIDE * SIDE) as usize;
    let images = MemoryDataset::builder().images_u8(vec![9; 8 * pixels], 8, SIDE, SIDE, 3, false).labels(vec![1; 8]);
    let wide = images.array("wide", DType::U16, vec![LARGE], vec![1; 8 * 2 * LARGE]);
    let loader = Loader::builder(Arc::new(wide.build().unwrap())).batch_size(8).dtype(DType::F32);
    let loader = loader.device(infeed::Device::Cpu).build_blocking().unwrap();
    let batch = loader.epoch(0).blocking().next().unwrap().unwrap();

    let before = ASKED.get();
    let tensors = batch.candle(&Device::Cpu).unwrap();
    let (small, large) = (ASKED.get().0 - before.0, ASKED.get().1 - before.1);
    // The images' as they are, two bytes as four in the same pass, and the 64 bytes of labels among the small ones.
    assert_eq!(large, 8 * pixels * 4 + 8 * LARGE * 4);
    assert!(small < 4096, "{small} bytes besides");
    assert_eq!(tensors["image"].elem_count(), 8 * pixels);
}
