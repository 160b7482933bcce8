//! Which instructions a loop is compiled for, and which of them run.

/// Which instructions a `Decoder` may use. Pixels are the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// The best this machine has.
    #[default]
    Best,
    /// At most AVX2 with FMA; NEON on aarch64.
    Avx2,
    /// What the compiler makes of plain code for every machine of this architecture.
    Portable,
}

/// Compiles a loop for each level under the loop's own name.
macro_rules! at_each_level {
    ($($(#[$doc:meta])* fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) = $body:ident;)*) => {$(
        $(#[$doc])*
        fn $name(level: $crate::simd::level::Level, $($arg: $ty),*) {
            #[multiversion::multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+fma"))]
            fn best($($arg: $ty),*) {
                $body($($arg),*)
            }
            #[multiversion::multiversion(targets("x86_64+avx2+fma"))]
            fn avx2($($arg: $ty),*) {
                $body($($arg),*)
            }
            match level {
                $crate::simd::level::Level::Best => best($($arg),*),
                $crate::simd::level::Level::Avx2 => avx2($($arg),*),
                $crate::simd::level::Level::Portable => $body($($arg),*),
            }
        }
    )*};
}

pub(super) use at_each_level;
