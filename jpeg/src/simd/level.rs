//! Which instructions a loop is compiled for, and which of them run.

/// Which instructions a `Decoder` may use. Pixels are the same bits.
///
/// ```
/// # let mut file = Vec::new();
/// # jpeg_encoder::Encoder::new(&mut file, 80).encode(&[120; 3 * 32 * 16], 32, 16, jpeg_encoder::ColorType::Rgb)?;
/// use infeed_jpeg::{Decoder, Level};
///
/// let plain = Decoder::new().level(Level::Portable).decode(&file)?;
/// assert_eq!(plain, Decoder::new().level(Level::Best).decode(&file)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// The best that this machine has of what there is: AVX2 or NEON. AVX-512 made these loops no faster (photographs to pixels on a Zen 4: within 1 %).
    #[default]
    Best,
    /// What the compiler makes of plain code for every machine of this architecture.
    Portable,
}

impl Level {
    /// Whether AVX2 may be used, and is there.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(super) fn avx2(self) -> bool {
        self == Self::Best && is_x86_feature_detected!("avx2")
    }
}

/// Compiles a loop for each level under the loop's own name.
macro_rules! at_each_level {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) = $body:ident;)*) => {$(
        $(#[$doc])*
        $vis fn $name(level: $crate::simd::level::Level, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2($($arg: $ty),*) {
                $body($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            if level.avx2() {
                // SAFETY: the processor has AVX2.
                return unsafe { avx2($($arg),*) };
            }
            let _ = level;
            $body($($arg),*)
        }
    )*};
}

pub(super) use at_each_level;
