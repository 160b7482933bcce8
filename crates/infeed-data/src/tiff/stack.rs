//! The meaning of a file's pages: channels, or slices and time points, which together are not one image.
//!
//! TIFF itself has no tag for it. Three writers put it into the description: Bio-Formats and others in XML (OME-TIFF),
//! ImageJ in lines of `key=value`, Python's tifffile in JSON. Without a description, pages are channels.

use infeed_core::error::{Error, Result};

use super::samples::unsupported;

/// Facts about a file's pages without their description.
pub(super) struct Pages {
    pub(super) count: u64,
    /// Number of values of one page.
    pub(super) values: u64,
}

/// An error if the description says that pages are more than the channels of one image, or that there are more images
/// than pages.
pub(super) fn check(description: &[u8], pages: &Pages) -> Result<()> {
    let text = String::from_utf8_lossy(description);
    let text = text.trim_end_matches('\0').trim();
    if text.starts_with("ImageJ=") {
        return imagej(text, pages);
    }
    if text.starts_with("{\"shape\":") {
        return shaped(text, pages);
    }
    if text.contains("<OME") && pages.count > 1 {
        return ome(text, pages);
    }
    Ok(())
}

fn imagej(text: &str, pages: &Pages) -> Result<()> {
    let of = |key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        value.and_then(|value| value.trim().parse::<u64>().ok())
    };
    let images = of("images").unwrap_or(1);
    let [channels, slices, frames] = ["channels", "slices", "frames"].map(|key| of(key).unwrap_or(1));
    if slices > 1 || frames > 1 || images > channels {
        return Err(stack(format!("{images} images: {channels} channels, {slices} slices, {frames} frames (ImageJ)")));
    }
    // For large stacks ImageJ writes a directory only for the first image; the others follow without one.
    if images > pages.count {
        return Err(stack(format!("{images} images, but only {} can be found (ImageJ)", pages.count)));
    }
    Ok(())
}

fn ome(text: &str, pages: &Pages) -> Result<()> {
    let images: Vec<&str> = text.match_indices("<Pixels").map(|(at, _)| &text[at..]).collect();
    let &[image] = &images[..] else {
        return Err(stack(format!("{} images (OME-XML)", images.len())));
    };
    let image = image.split_once('>').map_or(image, |(head, _)| head);
    let of = |key: &str| {
        let value = image.split_once(key)?.1.strip_prefix("=\"")?.split_once('"')?.0;
        value.parse::<u64>().ok()
    };
    let [channels, slices, times] = ["SizeC", "SizeZ", "SizeT"].map(|key| of(key).unwrap_or(1));
    if slices > 1 || times > 1 || channels != pages.count {
        let count = pages.count;
        return Err(stack(format!(
            "{count} pages: {channels} channels, {slices} slices, {times} time points (OME-XML)"
        )));
    }
    Ok(())
}

fn shaped(text: &str, pages: &Pages) -> Result<()> {
    let list = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
    let shape: Vec<u64> = list.split(',').filter_map(|axis| axis.trim().parse().ok()).collect();
    let axes = text.split_once("\"axes\": \"").and_then(|(_, rest)| rest.split_once('"')).map_or("", |(axes, _)| axes);
    // Axes before those of a page.
    let mut left = pages.values;
    let mut outer = shape.len();
    while let Some(axis) = outer.checked_sub(1).map(|at| shape[at].max(1))
        && left > 1
    {
        left = left.div_ceil(axis);
        outer -= 1;
    }
    let outer = &shape[..outer];
    let stacked = |letter: char| axes.find(letter).and_then(|at| shape.get(at)).is_some_and(|axis| *axis > 1);
    let images = outer.iter().fold(1u64, |all, axis| all.saturating_mul(*axis));
    let several = outer.iter().filter(|axis| **axis > 1).count() > 1;
    if images > 1 && (several || images > pages.count || (pages.count > 1 && (stacked('Z') || stacked('T')))) {
        let axes = if axes.is_empty() { String::new() } else { format!(", axes {axes}") };
        return Err(stack(format!("an array of {list}{axes} (tifffile)")));
    }
    Ok(())
}

fn stack(of: String) -> Error {
    unsupported(format!("a TIFF that describes itself as {of}")).with_hint(
        "an image is one page, or one page for each channel: write each slice and time point to its own file, \
         or the stack as NRRD or NIfTI, which are volumes",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = r#"<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0">
        <Pixels BigEndian="false" DimensionOrder="XYCZT" ID="Pixels:0" SizeC="C" SizeT="T" SizeX="29" SizeY="37" SizeZ="Z"
        Type="uint8"><Channel ID="Channel:0:0"/></Pixels></Image></OME>"#;

    fn xml([c, z, t]: [&str; 3]) -> String {
        XML.replace("\"C\"", &format!("{c:?}")).replace("\"Z\"", &format!("{z:?}")).replace("\"T\"", &format!("{t:?}"))
    }

    #[test]
    fn pages_are_channels_unless_the_file_says_otherwise() {
        let pages = |count| Pages { count, values: 37 * 29 };
        let twice = xml(["3", "1", "1"]).replace("</Image>", "<Pixels SizeC=\"1\"></Pixels></Image>");
        let cases: [(&str, u64, &str); 21] = [
            ("", 12, ""),
            ("a photograph of a cat", 12, ""),
            (&xml(["12", "1", "1"]), 12, ""),
            // One file of several that the same text describes.
            (&xml(["3", "40", "1"]), 1, ""),
            (&xml(["3", "4", "1"]), 12, "12 pages: 3 channels, 4 slices, 1 time points (OME-XML)"),
            (&xml(["1", "1", "3"]), 3, "1 channels, 1 slices, 3 time points"),
            (&xml(["3", "1", "1"]), 12, "12 pages: 3 channels"),
            (&twice, 4, "2 images (OME-XML)"),
            ("ImageJ=1.54f\nimages=3\nchannels=3\nmode=composite\n", 3, ""),
            ("ImageJ=1.54f\nunit=micron\n", 1, ""),
            (
                "ImageJ=1.54f\nimages=12\nchannels=3\nslices=2\nframes=2\nhyperstack=true\n",
                12,
                "12 images: 3 channels, 2",
            ),
            ("ImageJ=1.54f\nimages=12\nslices=12\nloop=false\n", 12, "12 slices"),
            ("ImageJ=1.54f\nimages=12\nloop=false\n", 12, "12 images: 1 channels"),
            ("ImageJ=1.54f\nimages=12\nchannels=12\n", 1, "12 images, but only 1 can be found"),
            (r#"{"shape": [37, 29]}"#, 1, ""),
            (r#"{"shape": [12, 37, 29]}"#, 12, ""),
            (r#"{"shape": [12, 37, 29], "axes": "CYX"}"#, 12, ""),
            (r#"{"shape": [12, 37, 29], "axes": "ZYX"}"#, 12, "an array of 12, 37, 29, axes ZYX (tifffile)"),
            (r#"{"shape": [2, 2, 3, 37, 29]}"#, 12, "an array of 2, 2, 3, 37, 29 (tifffile)"),
            (r#"{"shape": [12, 37, 29], "truncated": true}"#, 1, "an array of 12, 37, 29"),
            (r#"{"shape": []}"#, 12, ""),
        ];
        for (text, count, says) in cases {
            match check(text.as_bytes(), &pages(count)) {
                Ok(()) => assert_eq!(says, "", "{text}"),
                Err(error) => {
                    let words = error.to_string();
                    assert!(!says.is_empty() && words.contains(says), "{words}, not {says}");
                    assert!(words.contains("its own file"), "{words}");
                }
            }
        }
        // Samples of a pixel are no axis of pages.
        let rgb = Pages { count: 1, values: 37 * 29 * 3 };
        check(br#"{"shape": [37, 29, 3]}"#, &rgb).unwrap();
        check(br#"{"shape": [3, 37, 29]}"#, &rgb).unwrap();
        check(br#"{"shape": [4, 37, 29, 3]}"#, &rgb).unwrap_err();
        for odd in [&b"{\"shape\":"[..], b"{\"shape\": [0, 0]}", b"ImageJ=", b"<OME", b"<OME <Pixels", b"\xff\xfe<OME"]
        {
            let _ = check(odd, &pages(2));
        }
    }
}
