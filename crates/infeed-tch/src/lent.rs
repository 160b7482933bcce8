//! Gives memory to libtorch, with a function that returns it to the loader, which tch's own `from_blob` does not
//! support.
//!
//! `torch_from_blob` is in libtorch's C interface that PyTorch keeps stable (`torch/csrc/stable/c/shim.h`, since 2.11;
//! tch 0.26 uses 2.13). Unlike tch's function it takes a deleter, which libtorch calls when the last tensor of the
//! storage is gone. So a view, a `shallow_clone` or a gradient graph keeps the memory alive.
#![allow(unsafe_code)]

use std::{ffi::c_void, ptr};

use infeed::DType;
use tch::{Kind, TchError};

unsafe extern "C" {
    /// Returns 0 and puts a new `at::Tensor` at `tensor`. Not 0: libtorch printed the failure, or caught an exception.
    fn torch_from_blob(
        data: *mut c_void,
        axes: i64,
        sizes: *const i64,
        strides: *const i64,
        storage_offset: i64,
        scalar_type: i32,
        device_type: i32,
        device_index: i32,
        tensor: *mut *mut c_void,
        layout: i32,
        opaque: *const u8,
        opaque_len: i64,
        deleter: Option<unsafe extern "C" fn(data: *mut c_void, owner: *mut c_void)>,
        owner: *mut c_void,
    ) -> i32;
}

/// The memory of the values, in libtorch's device numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Host,
    Cuda(i32),
}

/// A type that infeed and tch both have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Type(pub(crate) Kind);

impl Type {
    pub(crate) const fn of(dtype: DType) -> Option<Self> {
        Some(Self(match dtype {
            DType::U8 => Kind::Uint8,
            DType::I8 => Kind::Int8,
            DType::I16 => Kind::Int16,
            DType::I32 => Kind::Int,
            DType::I64 => Kind::Int64,
            DType::F16 => Kind::Half,
            DType::Bf16 => Kind::BFloat16,
            DType::F32 => Kind::Float,
            DType::F64 => Kind::Double,
            DType::Bool => Kind::Bool,
            // libtorch has these types, but tch does not name them.
            DType::U16 | DType::U32 | DType::U64 => return None,
        }))
    }

    /// Its number in libtorch's `ScalarType`. tch has the numbers, but not in its public API.
    const fn scalar_type(self) -> i32 {
        match self.0 {
            Kind::Uint8 => 0,
            Kind::Int8 => 1,
            Kind::Int16 => 2,
            Kind::Int => 3,
            Kind::Int64 => 4,
            Kind::Half => 5,
            Kind::Float => 6,
            Kind::Double => 7,
            Kind::Bool => 11,
            Kind::BFloat16 => 15,
            _ => panic!("no type of infeed's"),
        }
    }
}

/// A tensor over row-major values at `data`. `owner` is dropped, on any thread, when libtorch no longer uses the
/// values.
///
/// # Safety
/// As long as `owner` lives: `data` is not null, and points to as many aligned values of `kind` as `sizes` says. They
/// may be read and written from any thread through the tensor, and no other code reads or writes them.
pub(crate) unsafe fn lend<O: Send + 'static>(
    data: *mut c_void,
    sizes: &[i64],
    kind: Type,
    place: Place,
    owner: O,
) -> Result<tch::Tensor, TchError> {
    let mut strides = vec![1; sizes.len()];
    for axis in (1..sizes.len()).rev() {
        // An axis of length 0 counts as 1, as in libtorch.
        strides[axis - 1] = strides[axis] * sizes[axis].max(1);
    }
    let (device_type, device_index) = match place {
        Place::Host => (0, -1),
        Place::Cuda(index) => (1, index),
    };
    let owner = Box::into_raw(Box::new(owner));
    let mut tensor = ptr::null_mut();
    // SAFETY: `sizes` and `strides` have `axes` elements, and libtorch copies them; the deleter is called once, with
    // its own `owner`. The caller guarantees the rest.
    let failed = unsafe {
        torch_from_blob(
            data,
            sizes.len() as i64,
            sizes.as_ptr(),
            strides.as_ptr(),
            0,
            kind.scalar_type(),
            device_type,
            device_index,
            &raw mut tensor,
            // Strided.
            0,
            ptr::null(),
            0,
            Some(give_back::<O>),
            owner.cast(),
        )
    };
    if failed != 0 || tensor.is_null() {
        // It is unknown whether the deleter was called: leaking the memory is better than freeing it twice.
        return Err(TchError::Torch(format!("infeed: libtorch refused memory of shape {sizes:?} on {place:?}")));
    }
    // SAFETY: a handle of that interface is the address of an `at::Tensor` made by `new`, which tch also uses and
    // deletes.
    Ok(unsafe { tch::Tensor::from_ptr(tensor.cast()) })
}

/// # Safety
/// `owner` is a `Box<O>` without another reference to it.
unsafe extern "C" fn give_back<O>(_data: *mut c_void, owner: *mut c_void) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { Box::from_raw(owner.cast::<O>()) });
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        thread,
    };

    use super::*;

    /// Six numbers, and a count of how often they were returned.
    struct Owner(Box<[f32; 6]>, Arc<AtomicUsize>);

    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.fill(f32::NAN);
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn lent(sizes: &[i64]) -> (tch::Tensor, *mut c_void, impl Fn() -> usize + use<>) {
        let back = Arc::new(AtomicUsize::new(0));
        let mut owner = Owner(Box::new([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), Arc::clone(&back));
        let at = owner.0.as_mut_ptr().cast();
        // SAFETY: the box does not move, and its owner is passed along.
        let tensor = unsafe { lend(at, sizes, Type(Kind::Float), Place::Host, owner) }.unwrap();
        (tensor, at, move || back.load(Ordering::SeqCst))
    }

    #[test]
    fn the_last_tensor_of_the_memory_gives_it_back_once() {
        let (tensor, at, back) = lent(&[2, 3]);
        assert_eq!((tensor.data_ptr(), tensor.size(), tensor.stride()), (at, vec![2, 3], vec![3, 1]));
        let (view, clone) = (tensor.narrow(0, 1, 1), tensor.shallow_clone());
        drop(tensor);
        assert_eq!(back(), 0);
        drop(clone);
        assert_eq!(Vec::<f32>::try_from(view.reshape([3])).unwrap(), [4.0, 5.0, 6.0]);
        assert_eq!(back(), 0);
        drop(view);
        assert_eq!(back(), 1);
    }

    #[test]
    fn a_graph_of_gradients_keeps_the_memory() {
        let (tensor, _, back) = lent(&[6]);
        let weight = tch::Tensor::ones([6], (Kind::Float, tch::Device::Cpu)).set_requires_grad(true);
        let loss = (&weight * tensor).sum(Kind::Float);
        assert_eq!(back(), 0, "the product's backward reads it");
        loss.backward();
        assert_eq!(Vec::<f32>::try_from(weight.grad()).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        drop(loss);
        assert_eq!(back(), 1);
    }

    #[test]
    fn another_thread_may_give_it_back() {
        let (tensor, _, back) = lent(&[3, 2]);
        thread::spawn(move || drop(tensor)).join().unwrap();
        assert_eq!(back(), 1);
    }

    #[test]
    fn memory_without_values_is_given_back_too() {
        for sizes in [[0, 3], [2, 0]] {
            let (tensor, _, back) = lent(&sizes);
            assert_eq!((tensor.size(), tensor.numel()), (sizes.to_vec(), 0));
            drop(tensor);
            assert_eq!(back(), 1);
        }
    }
}
