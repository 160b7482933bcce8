//! The instruction sets for which loops are compiled, and the choice between them at run time.
//!
//! Fused products make every level give the same bits. Without FMA instructions they are a slow library call.
//!
//! On aarch64 there is no choice: NEON, with its fused products, is part of the architecture, so every loop is compiled
//! for it.

use std::sync::atomic::{AtomicU8, Ordering};

/// The instructions that a [`Resampler`](super::Resampler) may use. Results have the same bits at each level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// The best that this machine has.
    #[default]
    Best,
    /// At most AVX2 with FMA; NEON on aarch64.
    Avx2,
    /// What the compiler generates for every machine of this architecture.
    Portable,
}

/// The instruction sets that a loop is compiled for, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Instructions {
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 as in Ice Lake and Zen 4. Older processors slow down when they use it.
    Avx512,
}

impl Level {
    /// The instructions of this level that this machine has.
    #[inline]
    pub(super) fn instructions(self) -> Instructions {
        let most = match self {
            Self::Best => Instructions::Avx512,
            Self::Avx2 => Instructions::Avx2,
            Self::Portable => return Instructions::Portable,
        };
        most.min(detected())
    }
}

/// Detected once: fifteen queries would cost noticeable time next to a row of 32 pixels.
#[inline]
fn detected() -> Instructions {
    static DETECTED: AtomicU8 = AtomicU8::new(UNASKED);
    const UNASKED: u8 = 0;
    match DETECTED.load(Ordering::Relaxed) {
        1 => Instructions::Portable,
        2 => Instructions::Avx2,
        3 => Instructions::Avx512,
        _ => {
            let found = detect();
            // Threads that detect at the same time find the same.
            DETECTED.store(1 + found as u8, Ordering::Relaxed);
            found
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[cold]
fn detect() -> Instructions {
    macro_rules! all {
        ($($feature:tt)*) => { true $(&& std::arch::is_x86_feature_detected!($feature))* };
    }
    if !all!("avx2" "fma" "f16c") {
        Instructions::Portable
    } else if all!(
        "avx512bitalg" "avx512bw" "avx512cd" "avx512dq" "avx512f" "avx512ifma" "avx512vbmi" "avx512vbmi2" "avx512vl"
        "avx512vnni" "avx512vpopcntdq" "gfni" "vaes" "vpclmulqdq"
    ) {
        Instructions::Avx512
    } else {
        Instructions::Avx2
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Instructions {
    Instructions::Portable
}

/// Compiles a loop once for each of the [`Instructions`], under the loop's own name.
macro_rules! at_each_level {
    ($($(#[$doc:meta])* fn $name:ident [$($g:ident: $bound:ident),*] ($($arg:ident: $ty:ty),* $(,)?) = $body:ident;)*) => {$(
        $(#[$doc])*
        pub(super) fn $name<$($g: $bound),*>(level: $crate::kernels::Level, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(
                enable = "avx512bitalg,avx512bw,avx512cd,avx512dq,avx512f,avx512ifma,avx512vbmi,avx512vbmi2,avx512vl",
                enable = "avx512vnni,avx512vpopcntdq,gfni,vaes,vpclmulqdq,avx2,fma"
            )]
            fn avx512<$($g: $bound),*>($($arg: $ty),*) {
                $body::<$($g),*>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<$($g: $bound),*>($($arg: $ty),*) {
                $body::<$($g),*>($($arg),*)
            }
            // Compiled once, not inlined into each caller.
            #[inline(never)]
            fn portable<$($g: $bound),*>($($arg: $ty),*) {
                $body::<$($g),*>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            match level.instructions() {
                // SAFETY: the processor has the features that it is compiled for.
                $crate::kernels::level::Instructions::Avx512 => return unsafe { avx512::<$($g),*>($($arg),*) },
                // SAFETY: the same.
                $crate::kernels::level::Instructions::Avx2 => return unsafe { avx2::<$($g),*>($($arg),*) },
                $crate::kernels::level::Instructions::Portable => {}
            }
            let _ = level;
            portable::<$($g),*>($($arg),*)
        }
    )*};
}

pub(super) use at_each_level;
