//! Pictures as PNG files.

use png::{BitDepth, ColorType, Compression, Encoder, EncodingError, Filter};

/// Encodes rows of RGB pixels. The same image always gives the same bytes, as `synth` guarantees.
pub(crate) fn encode(rgb: &[u8], width: u32, height: u32) -> Result<Vec<u8>, EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, width, height);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::Fast);
    encoder.set_filter(Filter::Adaptive);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(rgb)?;
    writer.finish()?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use image::{ExtendedColorType, ImageEncoder, codecs::png::PngEncoder};

    use super::*;

    #[test]
    fn files_are_those_of_the_image_crate() {
        // Versions before wrote with it, and data made by a seed stays what it was.
        let (width, height) = (37, 21);
        let rgb: Vec<u8> = (0..width * height * 3).map(|i| (i * i / 7 + i / 3) as u8).collect();
        let mut known = Vec::new();
        PngEncoder::new(&mut known).write_image(&rgb, width, height, ExtendedColorType::Rgb8).unwrap();
        assert_eq!(encode(&rgb, width, height).unwrap(), known);
        assert!(encode(&rgb[1..], width, height).is_err());
    }
}
