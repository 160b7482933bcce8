//! NRRD headers ([the format's definition](https://teem.sourceforge.net/nrrd/format.html)).
//!
//! A file lists its axes fastest first, a tensor slowest first: sizes `X Y Z` are a volume `[Z, Y, X]`.
//! - Of four axes, the one that is not a direction in space counts channels: by `kinds`, or by `none` in
//!   `space directions`; otherwise the slowest.
//! - Of two or three axes, one counts channels only if the header marks it so, as for colours.
//! - With fewer than three axes in space, depth is 1, then height too.

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::DType,
};

use super::header::{Coding, DataFiles, VolumeHeader};

/// The longest header that is read, in bytes. Most have a few hundred; a scanner's key/value pairs may be long.
pub(super) const LONGEST: u64 = 1 << 20;
/// Most data files that a header may name.
const MOST_FILES: i64 = 100_000;

/// Reads the header at the beginning of `bytes`. `whole`: whether they are the whole file. If not, `Ok(None)` means
/// that the header continues after them: call again with more.
///
/// ```
/// # let text = "NRRD0004\ntype: uint8\ndimension: 3\nsizes: 4 3 2\nencoding: raw\n\n";
/// # let file = bytes::Bytes::from([text.as_bytes(), &[7; 24]].concat());
/// use infeed::dataset::fuzz::parse_nrrd;
///
/// // The first bytes of a file may end before its header does.
/// assert!(parse_nrrd(&file[..40], false)?.is_none());
/// assert_eq!(parse_nrrd(&file, true)?.map(|header| header.shape), Some([2, 3, 4]));
/// assert!(parse_nrrd(b"P6 4 3 255", true).is_err());
/// # Ok::<(), infeed::Error>(())
/// ```
///
/// # Errors
/// `Corrupt` for bytes that are not an NRRD header, `Unsupported` for types and shapes that are not read. The error
/// names no object.
pub fn parse_nrrd(bytes: &[u8], whole: bool) -> Result<Option<VolumeHeader>> {
    if !b"NRRD000".starts_with(&bytes[..bytes.len().min(7)]) || (whole && bytes.len() < 8) {
        return Err(Error::corrupt("not an NRRD file: it does not begin with `NRRD000`"));
    }
    let mut fields = Fields::default();
    let mut at = 0;
    let mut first = true;
    loop {
        let line = match bytes[at..].iter().position(|b| *b == b'\n') {
            Some(end) => {
                let line = &bytes[at..at + end];
                at += end + 1;
                line
            }
            None if !whole => return Ok(None),
            None => {
                // A detached header may end without an empty line.
                let line = &bytes[at..];
                at = bytes.len();
                if line.is_empty() {
                    break;
                }
                line
            }
        };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if std::mem::take(&mut first) {
            if !matches!(line, [b'N', b'R', b'R', b'D', b'0', b'0', b'0', b'1'..=b'5']) {
                return Err(Error::corrupt("the first line has no version of NRRD from 1 to 5"));
            }
        } else if line.is_empty() {
            break;
        } else {
            let line = String::from_utf8_lossy(line);
            fields.add(&line)?;
        }
        if at == bytes.len() && whole {
            break;
        }
    }
    fields.finish(at as u64).map(Some)
}

#[derive(Debug, Default)]
struct Fields {
    dtype: Option<DType>,
    dimension: Option<usize>,
    sizes: Vec<u64>,
    coding: Option<Coding>,
    big_endian: Option<bool>,
    line_skip: u64,
    byte_skip: i64,
    files: Option<Files>,
    kinds: Vec<String>,
    spacings: Vec<f64>,
    /// Signs of the coordinates that count to the right, to the front and up, if the space is one of the body.
    space: Option<[f64; 3]>,
    directions: Vec<Option<Vec<f64>>>,
    origin: Vec<f64>,
    mins: Vec<f64>,
    /// Whether `data file: LIST` was read: each line after it is a name.
    lists: bool,
}

#[derive(Debug)]
struct Files {
    names: Vec<String>,
    subdim: Option<usize>,
    many: bool,
}

fn bad(field: &str, value: &str) -> Error {
    Error::corrupt(format!("`{field}: {}` is not understood", value.chars().take(80).collect::<String>()))
}

impl Fields {
    fn add(&mut self, line: &str) -> Result<()> {
        if let (true, Some(files)) = (self.lists, &mut self.files) {
            files.names.push(line.trim().to_owned());
            return Ok(());
        }
        if line.starts_with('#') {
            return Ok(());
        }
        let Some((name, value)) = line.split_once(':') else {
            return Err(Error::corrupt(format!("not a field: `{}`", line.chars().take(80).collect::<String>())));
        };
        // `key:=value` is a pair of the user's.
        if value.starts_with('=') {
            return Ok(());
        }
        let value = value.trim();
        let name: String = name.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase();
        let numbers = |value: &str| -> Result<Vec<f64>> {
            value.split_whitespace().map(|word| word.parse().map_err(|_| bad(&name, value))).collect()
        };
        match &*name {
            "type" => self.dtype = Some(voxel_type(value)?),
            "dimension" => self.dimension = Some(value.parse().map_err(|_| bad(&name, value))?),
            "sizes" => {
                let sizes = value.split_whitespace().map(|word| word.parse().map_err(|_| bad(&name, value)));
                self.sizes = sizes.collect::<Result<_>>()?;
            }
            "encoding" => {
                self.coding = Some(match &*value.to_ascii_lowercase() {
                    "raw" => Coding::Raw,
                    "txt" | "text" | "ascii" => Coding::Text,
                    "hex" => Coding::Hex,
                    "gz" | "gzip" => Coding::Gzip,
                    "bz2" | "bzip2" => Coding::Bzip2,
                    other => {
                        return Err(Error::new(ErrorKind::Unsupported, format!("encoding {other:?}"))
                            .with_hint("write it as raw, gzip, bzip2, text or hex"));
                    }
                });
            }
            "endian" => {
                self.big_endian = Some(match &*value.to_ascii_lowercase() {
                    "big" => true,
                    "little" => false,
                    _ => return Err(bad(&name, value)),
                });
            }
            "lineskip" => self.line_skip = value.parse().map_err(|_| bad(&name, value))?,
            "byteskip" => {
                self.byte_skip = value.parse().map_err(|_| bad(&name, value))?;
                if self.byte_skip < -1 {
                    return Err(bad(&name, value));
                }
            }
            "datafile" => self.files = Some(self.data_file(value)?),
            "kinds" => self.kinds = value.split_whitespace().map(str::to_ascii_lowercase).collect(),
            "spacings" => self.spacings = numbers(value)?,
            "axismins" => self.mins = numbers(value)?,
            "space" => {
                self.space = match &*value.to_ascii_lowercase() {
                    "right-anterior-superior" | "ras" => Some([1.0, 1.0, 1.0]),
                    "left-anterior-superior" | "las" => Some([-1.0, 1.0, 1.0]),
                    "left-posterior-superior" | "lps" => Some([-1.0, -1.0, 1.0]),
                    _ => None,
                };
            }
            "spacedirections" => {
                // Vectors may contain spaces: `(1, 0, 0) none`.
                let mut rest = value;
                while let Some(c) = rest.chars().next() {
                    if c == '(' {
                        let (vector, more) = rest[1..].split_once(')').ok_or_else(|| bad(&name, value))?;
                        self.directions.push(Some(vector_of(vector).ok_or_else(|| bad(&name, value))?));
                        rest = more.trim_start();
                    } else {
                        let (word, more) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                        if word != "none" {
                            return Err(bad(&name, value));
                        }
                        self.directions.push(None);
                        rest = more.trim_start();
                    }
                }
            }
            "spaceorigin" => {
                let vector = value.strip_prefix('(').and_then(|v| v.strip_suffix(')')).and_then(vector_of);
                self.origin = vector.ok_or_else(|| bad(&name, value))?;
            }
            // The other fields do not describe voxels.
            _ => {}
        }
        Ok(())
    }

    /// `volume.raw`, `LIST [subdim]` or `slice%03d.raw 1 60 1 [subdim]`.
    fn data_file(&mut self, value: &str) -> Result<Files> {
        let words: Vec<&str> = value.split_whitespace().collect();
        let wrong = || bad("data file", value);
        if words.first().is_some_and(|word| *word == "LIST") && words.len() <= 2 {
            self.lists = true;
            let subdim = words.get(1).map(|n| n.parse().map_err(|_| wrong())).transpose()?;
            return Ok(Files { names: Vec::new(), subdim, many: true });
        }
        // Names may contain spaces: take the numbers from the end.
        let numbers = words.iter().rev().map_while(|word| word.parse::<i64>().ok()).take(4).count();
        if numbers >= 3 && value.contains('%') {
            let tail: Vec<i64> = words[words.len() - numbers..].iter().filter_map(|w| w.parse().ok()).collect();
            let pattern = words[..words.len() - numbers].join(" ");
            let (first, last, step) = (tail[0], tail[1], tail[2]);
            let steps = if step == 0 { None } else { (last.checked_sub(first)).and_then(|d| d.checked_div(step)) };
            let Some(steps) = steps.filter(|steps| (0..MOST_FILES).contains(steps)) else { return Err(wrong()) };
            let names = (0..=steps).map(|i| printed(&pattern, first + i * step).ok_or_else(wrong));
            let subdim = tail.get(3).map(|n| usize::try_from(*n).map_err(|_| wrong())).transpose()?;
            return Ok(Files { names: names.collect::<Result<_>>()?, subdim, many: true });
        }
        if value.is_empty() {
            return Err(wrong());
        }
        Ok(Files { names: vec![value.to_owned()], subdim: None, many: false })
    }

    fn finish(self, header: u64) -> Result<VolumeHeader> {
        let missing = |field: &str| Error::corrupt(format!("the header has no `{field}`"));
        let dtype = self.dtype.ok_or_else(|| missing("type"))?;
        let dimension = self.dimension.ok_or_else(|| missing("dimension"))?;
        let coding = self.coding.ok_or_else(|| missing("encoding"))?;
        if !(1..=4).contains(&dimension) {
            return Err(
                Error::new(ErrorKind::Unsupported, format!("{dimension} axes")).with_hint("volumes have 1 to 4")
            );
        }
        if self.sizes.len() != dimension {
            return Err(Error::corrupt(format!("{} sizes for {dimension} axes", self.sizes.len())));
        }
        if self.sizes.contains(&0) {
            return Err(Error::corrupt("the header says a size of 0"));
        }
        let as_bytes = !matches!(coding, Coding::Text);
        let big_endian = match self.big_endian {
            Some(big) => big,
            None if dtype.size() > 1 && as_bytes => return Err(missing("endian")),
            None => cfg!(target_endian = "big"),
        };
        let byte_skip = match self.byte_skip {
            -1 if matches!(coding, Coding::Text | Coding::Hex) => {
                return Err(Error::corrupt("`byte skip: -1` with encoding text or hex"));
            }
            -1 => None,
            skip => Some(skip as u64),
        };
        let data = match self.files {
            None => DataFiles::Attached(header),
            Some(files) => {
                let slowest = self.sizes[dimension - 1];
                // By default each of several files is a slice along the slowest axis.
                let subdim = files.subdim.unwrap_or(if files.many { dimension.max(2) - 1 } else { dimension });
                let slices = match subdim {
                    n if n == dimension => {
                        Some(files.names.len() as u64).filter(|n| *n > 0 && slowest.is_multiple_of(*n))
                    }
                    n if n > 0 && n < dimension => self.sizes[n..].iter().try_fold(1u64, |all, n| all.checked_mul(*n)),
                    _ => None,
                };
                if slices != Some(files.names.len() as u64) {
                    let what = format!("{} data files for sizes {:?}", files.names.len(), self.sizes);
                    return Err(Error::corrupt(what).with_hint("check its `data file` line"));
                }
                DataFiles::Detached(files.names)
            }
        };
        // Which axis counts channels; the others are x, y, z.
        let in_space = |axis: usize| {
            let kind = self.kinds.get(axis).map(String::as_str).unwrap_or("???");
            match self.directions.get(axis) {
                Some(direction) => direction.is_some(),
                None => matches!(kind, "domain" | "space" | "???" | "none"),
            }
        };
        let channel_axis = match dimension {
            4 if !in_space(0) => Some(0),
            4 if in_space(1) && in_space(2) => Some(3),
            4 => {
                return Err(Error::new(ErrorKind::Unsupported, "the axis of channels is between the axes of space")
                    .with_hint("make them the fastest or the slowest axis"));
            }
            // Colours of one picture, or a list of pictures, are not depth.
            2 | 3 => match (0..dimension).filter(|axis| !in_space(*axis)).collect::<Vec<_>>()[..] {
                [axis] if axis == 0 || axis == dimension - 1 => Some(axis),
                [_] => {
                    return Err(Error::new(
                        ErrorKind::Unsupported,
                        "the axis of channels is between the axes of space",
                    )
                    .with_hint("make them the fastest or the slowest axis"));
                }
                _ => None,
            },
            _ => None,
        };
        let spatial: Vec<usize> = (0..dimension).filter(|axis| Some(*axis) != channel_axis).collect();
        let mut shape = [1; 3];
        let mut spacing = [f32::NAN; 3];
        let mut origin = [f32::NAN; 3];
        let fits = |n: u64| usize::try_from(n).map_err(|_| Error::corrupt(format!("the header says a size of {n}")));
        for (place, axis) in spatial.iter().enumerate() {
            shape[2 - place] = fits(self.sizes[*axis])?;
            let direction = self.directions.get(*axis).and_then(Option::as_ref);
            let length = |vector: &Vec<f64>| vector.iter().map(|v| v * v).sum::<f64>().sqrt();
            let given = direction.map(length).or_else(|| self.spacings.get(*axis).copied());
            spacing[2 - place] = given.unwrap_or(f64::NAN) as f32;
            let given = self.origin.get(place).or_else(|| self.mins.get(*axis));
            origin[2 - place] = given.copied().unwrap_or(f64::NAN) as f32;
        }
        let grid = self.space.filter(|_| spatial.len() == 3).and_then(|signs| {
            let steps = spatial.iter().rev().map(|axis| self.directions.get(*axis)?.as_ref());
            let vectors: Vec<_> = steps.chain([Some(&self.origin)]).collect::<Option<_>>()?;
            let placed = |vector: &Vec<f64>| {
                let vector: [f64; 3] = vector.as_slice().try_into().ok()?;
                Some([0, 1, 2].map(|i| vector[i] * signs[i]))
            };
            vectors.into_iter().map(placed).collect::<Option<Vec<_>>>()?.try_into().ok()
        });
        VolumeHeader {
            dtype,
            big_endian,
            coding,
            data,
            line_skip: self.line_skip,
            byte_skip,
            channels: channel_axis.map_or(Ok(1), |axis| fits(self.sizes[axis]))?,
            shape,
            interleaved: channel_axis == Some(0),
            spacing,
            origin,
            slope: 1.0,
            intercept: 0.0,
            grid,
        }
        .check()
    }
}

fn voxel_type(name: &str) -> Result<DType> {
    let words: Vec<String> = name.split_whitespace().map(str::to_ascii_lowercase).collect();
    Ok(match &*words.join(" ") {
        "signed char" | "int8" | "int8_t" => DType::I8,
        "uchar" | "unsigned char" | "uint8" | "uint8_t" => DType::U8,
        "short" | "short int" | "signed short" | "signed short int" | "int16" | "int16_t" => DType::I16,
        "ushort" | "unsigned short" | "unsigned short int" | "uint16" | "uint16_t" => DType::U16,
        "int" | "signed int" | "int32" | "int32_t" => DType::I32,
        "uint" | "unsigned int" | "uint32" | "uint32_t" => DType::U32,
        "longlong"
        | "long long"
        | "long long int"
        | "signed long long"
        | "signed long long int"
        | "int64"
        | "int64_t" => DType::I64,
        "ulonglong" | "unsigned long long" | "unsigned long long int" | "uint64" | "uint64_t" => DType::U64,
        "float" => DType::F32,
        "double" => DType::F64,
        "block" => {
            return Err(Error::new(ErrorKind::Unsupported, "voxels of type `block`").with_hint("write them as numbers"));
        }
        _ => return Err(bad("type", name)),
    })
}

fn vector_of(text: &str) -> Option<Vec<f64>> {
    text.split(',').map(|word| word.trim().parse().ok()).collect()
}

/// Fills `number` into a pattern with one `%d`, `%3d` or `%03d`.
fn printed(pattern: &str, number: i64) -> Option<String> {
    let (before, rest) = pattern.split_once('%')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit())?;
    let (width, rest) = rest.split_at(digits);
    let after = rest.strip_prefix(['d', 'i', 'u'])?;
    let zeros = width.starts_with('0');
    let width: usize = if width.is_empty() { 0 } else { width.parse().ok().filter(|w| *w <= 32)? };
    Some(match zeros {
        true => format!("{before}{number:0width$}{after}"),
        false => format!("{before}{number:width$}{after}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<VolumeHeader> {
        parse_nrrd(text.as_bytes(), true).map(|header| header.expect("whole"))
    }

    fn says(text: &str, what: &str) {
        let error = parse(text).expect_err(what).to_string();
        assert!(error.contains(what), "{error}");
    }

    const CT: &str = "NRRD0004\n# made by hand\ntype: short\ndimension: 3\nspace: left-posterior-superior\n\
        sizes: 5 4 3\nspace directions: (0.5,0,0) (0,3,4) (0,0,2)\nkinds: domain domain domain\nendian: little\n\
        encoding: gzip\nspace origin: (-1,-2,-3.5)\nPatientName:=nobody\n\nDATA";

    #[test]
    fn axes_are_turned_round_and_metadata_with_them() {
        let header = parse(CT).unwrap();
        assert_eq!((header.dtype, header.shape, header.channels), (DType::I16, [3, 4, 5], 1));
        assert_eq!((header.spacing, header.origin), ([2.0, 5.0, 0.5], [-3.5, -2.0, -1.0]));
        // To the right and to the front, where the file counts to the left and to the back.
        let grid = [[0.0, 0.0, 2.0], [0.0, -3.0, 4.0], [-0.5, 0.0, 0.0], [1.0, 2.0, -3.5]];
        assert_eq!(header.grid, Some(grid));
        let other = CT.replace("left-posterior", "right-posterior");
        assert_eq!(parse_nrrd(other.as_bytes(), true).unwrap().unwrap().grid, None);
        assert_eq!(header.data, DataFiles::Attached(CT.len() as u64 - 4));
        assert_eq!(parse_nrrd(&CT.as_bytes()[..60], false).unwrap(), None, "the header goes on");
        assert_eq!(parse(&CT.replace('\n', "\r\n")).unwrap().shape, [3, 4, 5]);
    }

    #[test]
    fn one_to_four_axes() {
        let of = |rest: &str| parse(&format!("NRRD0005\ntype: uint8\nencoding: raw\n{rest}\n\n"));
        assert_eq!(of("dimension: 1\nsizes: 7").unwrap().shape, [1, 1, 7]);
        assert_eq!(of("dimension: 2\nsizes: 7 6\nspacings: 1.5 2").unwrap().spacing[1..], [2.0, 1.5]);
        let four = of("dimension: 4\nsizes: 7 6 5 2").unwrap();
        assert_eq!((four.shape, four.channels, four.interleaved), ([5, 6, 7], 2, false));
        let vector = of("dimension: 4\nsizes: 3 7 6 5\nkinds: vector domain domain domain").unwrap();
        assert_eq!((vector.shape, vector.channels, vector.interleaved), ([5, 6, 7], 3, true));
        let none = of("dimension: 4\nsizes: 3 7 6 5\nspace directions: none (1,0,0) (0,1,0) (0,0,1)").unwrap();
        assert_eq!((none.shape, none.interleaved, none.spacing), ([5, 6, 7], true, [1.0; 3]));
        let colours = of("dimension: 3\nsizes: 3 7 6\nkinds: RGB-color domain domain").unwrap();
        assert_eq!((colours.shape, colours.channels, colours.interleaved), ([1, 6, 7], 3, true));
        let list = of("dimension: 3\nsizes: 7 6 5\nkinds: domain domain list").unwrap();
        assert_eq!((list.shape, list.channels, list.interleaved), ([1, 6, 7], 5, false));
        let plain = of("dimension: 3\nsizes: 3 7 6\nkinds: domain domain domain").unwrap();
        assert_eq!((plain.shape, plain.channels), ([6, 7, 3], 1));
        let between = of("dimension: 3\nsizes: 7 3 6\nspace directions: (1,0) none (0,1)").unwrap_err().to_string();
        assert!(between.contains("between the axes"), "{between}");
        assert!(of("dimension: 5\nsizes: 1 1 1 1 1").is_err());
    }

    #[test]
    fn data_files_of_every_kind() {
        let of =
            |rest: &str| parse(&format!("NRRD0005\ntype: uint8\nencoding: raw\ndimension: 3\nsizes: 4 4 6\n{rest}"));
        let names = |rest: &str| match of(rest).unwrap().data {
            DataFiles::Detached(names) => names,
            DataFiles::Attached(_) => panic!("attached"),
        };
        assert_eq!(names("data file: my volume.raw"), ["my volume.raw"]);
        assert_eq!(names("datafile: LIST\na\nb\nc\nd\ne\nf"), ["a", "b", "c", "d", "e", "f"]);
        assert_eq!(names("data file: LIST 3\na.raw\nb.raw\n"), ["a.raw", "b.raw"]);
        assert_eq!(names("data file: s%03d.raw 1 6 1").len(), 6);
        assert_eq!(names("data file: s%03d.raw 1 6 1")[5], "s006.raw");
        assert_eq!(names("data file: s%d.raw 10 0 -2 2").last().unwrap(), "s0.raw");
        assert_eq!(names("data file: s%d.raw 0 23 1 1").len(), 24);
        let refused = |rest: &str| of(rest).unwrap_err().to_string();
        assert!(refused("data file: LIST\na\nb").contains("2 data files for sizes [4, 4, 6]"));
        assert!(refused("data file: s%d.raw 0 9223372036854775807 1").contains("not understood"));
        assert!(refused("data file: s%d.raw 0 5 0").contains("not understood"));
        assert!(refused("data file: s%s.raw 0 5 1").contains("not understood"));
        assert!(refused("data file: s%99999999999d.raw 0 5 1").contains("not understood"));
    }

    #[test]
    fn headers_that_can_not_be_are_refused() {
        says("NRRD0009\n", "no version");
        says("P6\n", "does not begin");
        says("NRRD0004\ntype: short\ndimension: 1\nsizes: 4\nencoding: raw\n\n", "no `endian`");
        says("NRRD0004\ntype: what\n", "`type: what`");
        says("NRRD0004\ntype: block\n", "block");
        says("NRRD0004\ndimension: 3\nencoding: raw\n\n", "no `type`");
        says("NRRD0004\ntype: uint8\ndimension: 3\nsizes: 1 2\nencoding: raw\n\n", "2 sizes for 3 axes");
        says("NRRD0004\ntype: uint8\ndimension: 1\nsizes: 0\nencoding: raw\n\n", "size of 0");
        says("NRRD0004\ntype: uint8\ndimension: 1\nsizes: -4\nencoding: raw\n\n", "not understood");
        let huge = "18446744073709551615";
        says(
            &format!("NRRD0004\ntype: double\ndimension: 2\nsizes: {huge} {huge}\nencoding: raw\nendian: big\n\n"),
            "memory",
        );
        says("NRRD0004\ntype: uint8\ndimension: 1\nsizes: 4\nencoding: hex\nbyte skip: -1\n\n", "encoding text or hex");
        says("NRRD0004\nbyte skip: -2\n", "not understood");
        says("NRRD0004\nencoding: zstd\n", "encoding \"zstd\"");
        says("NRRD0004\nnonsense\n", "not a field");
    }

    #[test]
    fn damaged_headers_never_panic() {
        let mut draws = infeed_core::random::SampleRng::new(7, 7, 7).op(0);
        let list = b"NRRD0004\ntype: int\ndimension: 4\nsizes: 3 4 4 6\nencoding: raw\nendian: big\ndata file: s%02d.raw 1 6 1 3\n".to_vec();
        for base in [CT.as_bytes().to_vec(), list] {
            for cut in 0..base.len() {
                let _ = parse_nrrd(&base[..cut], true);
                let _ = parse_nrrd(&base[..cut], false);
            }
            for _ in 0..20_000 {
                let mut bytes = base.clone();
                for _ in 0..1 + draws.below(4) {
                    let at = draws.below(bytes.len() as u64) as usize;
                    bytes[at] = if draws.chance(0.5) { b'0' + draws.below(10) as u8 } else { draws.bits() as u8 };
                }
                let _ = parse_nrrd(&bytes, draws.chance(0.5));
            }
        }
    }
}
