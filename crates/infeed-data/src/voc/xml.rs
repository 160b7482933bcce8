//! One XML file of Pascal VOC: the size of the image, and the objects in it.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};
use infeed_core::error::{Error, ErrorKind, Result};
use quick_xml::{Reader, escape::resolve_predefined_entity, events::Event};

/// Largest depth of nested elements. VOC and labelImg need at most five.
const DEPTH: usize = 64;

/// The content of one file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Xml {
    /// Height and width; 0 if missing, as many tools leave it.
    pub(super) size: [u32; 2],
    pub(super) objects: Vec<Object>,
}

/// One object in the image.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Object {
    pub(super) name: String,
    /// `xmin`, `ymin`, `xmax`, `ymax` as written: pixels are counted from 1, and the last one is inside.
    pub(super) corners: [Option<f64>; 4],
    /// The bounds of its polygon, as corners are written: left, top, right, bottom.
    pub(super) polygon: Option<[f64; 4]>,
    pub(super) difficult: bool,
}

/// Reads the file. Numbers of boxes are not checked here; errors are reported when the image is read.
pub(super) fn parse(bytes: &[u8]) -> Result<Xml> {
    let bytes = utf8(bytes)?;
    let mut reader = Reader::from_reader(&*bytes);
    let mut found = Xml::default();
    // The names of the open elements, and the text of the innermost.
    let mut path: Vec<String> = Vec::new();
    let mut text = String::new();
    let mut is_annotation = false;
    loop {
        let at = reader.buffer_position();
        let wrong = |what: &str| Error::corrupt(format!("the XML {what} at byte {at}"));
        let not_utf8 = || {
            wrong("is not UTF-8")
                .with_hint("name its encoding in the first line: <?xml version=\"1.0\" encoding=\"GBK\"?>")
        };
        match reader.read_event().map_err(|e| wrong("is broken").with_source(e))? {
            Event::Start(tag) => {
                let name = tag.name();
                if path.len() == DEPTH {
                    return Err(wrong(&format!("has more than {DEPTH} elements in one another"))
                        .with_hint("write it as Pascal VOC does, or remove the file"));
                }
                path.push(String::from_utf8_lossy(name.as_ref()).into_owned());
                text.clear();
                let open: Vec<&str> = path.iter().map(String::as_str).collect();
                is_annotation |= open == ["annotation"];
                if open == ["annotation", "object"] {
                    found.objects.push(Object::default());
                }
            }
            Event::End(_) => {
                // Parts of objects have boxes and names of their own, at a greater depth.
                let open: Vec<&str> = path.iter().map(String::as_str).collect();
                if let ["annotation", rest @ ..] = &open[..] {
                    found.take(rest, text.trim());
                }
                path.pop();
                text.clear();
            }
            Event::Text(part) => text += &part.decode().map_err(|e| not_utf8().with_source(e))?,
            Event::CData(part) => text += &part.decode().map_err(|e| not_utf8().with_source(e))?,
            Event::GeneralRef(name) => {
                let letter = name.resolve_char_ref().map_err(|e| wrong("is broken").with_source(e))?;
                match letter {
                    Some(letter) => text.push(letter),
                    None => {
                        let name = name.decode().map_err(|e| not_utf8().with_source(e))?;
                        text += resolve_predefined_entity(&name).ok_or_else(|| wrong("has an unknown entity"))?;
                    }
                }
            }
            Event::Eof if !path.is_empty() => return Err(wrong("ends early,")),
            Event::Eof => break,
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
    }
    if !is_annotation {
        return Err(Error::corrupt("this is not an annotation of Pascal VOC")
            .with_hint("its first element has to be <annotation>"));
    }
    if let Some(at) = found.objects.iter().position(|object| object.name.is_empty()) {
        return Err(Error::corrupt(format!("object {at} has no name")).with_hint("write its class as <name>"));
    }
    Ok(found)
}

/// The file as UTF-8, converted from the encoding that it names.
fn utf8(bytes: &[u8]) -> Result<Cow<'_, [u8]>> {
    let encoding = match (Encoding::for_bom(bytes), bytes) {
        (Some((encoding, _)), _) => encoding,
        (None, [b'<', 0, ..]) => UTF_16LE,
        (None, [0, b'<', ..]) => UTF_16BE,
        (None, _) => match declared(bytes) {
            None => UTF_8,
            Some(name) => known(&name).ok_or_else(|| {
                Error::new(ErrorKind::Unsupported, format!("an XML in the encoding {name}"))
                    .with_hint("write it in UTF-8, and name that in its first line")
            })?,
        },
    };
    if encoding == UTF_8 {
        // The reader handles a byte order mark.
        return Ok(Cow::Borrowed(bytes));
    }
    let (text, bad) = encoding.decode_with_bom_removal(bytes);
    if bad {
        return Err(Error::corrupt(format!("the XML is not in {}, the encoding that it names", encoding.name()))
            .with_hint("correct the encoding in its first line, or write it in UTF-8"));
    }
    Ok(Cow::Owned(text.into_owned().into_bytes()))
}

/// The encoding that the first line names.
fn declared(bytes: &[u8]) -> Option<String> {
    let line = bytes.strip_prefix(b"<?xml")?;
    let line = &line[..line.iter().position(|byte| *byte == b'>')?];
    let line = std::str::from_utf8(line).ok()?;
    let value = line.split_once("encoding")?.1.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    Some(value[1..].split(quote).next()?.trim().to_owned())
}

fn known(name: &str) -> Option<&'static Encoding> {
    let found = Encoding::for_label(name.as_bytes())
        // Names of Python and Windows that the web standard does not have.
        .or_else(|| Encoding::for_label(name.replace(['-', '_'], "").as_bytes()))
        .or_else(|| Encoding::for_label(name.replace('_', "-").as_bytes()))
        .or_else(|| matches!(&*name.to_ascii_lowercase(), "cp936" | "ms936").then_some(encoding_rs::GBK));
    // A file whose first line could be read byte by byte is not UTF-16: .NET writes that name into UTF-8 files.
    found.map(Encoding::output_encoding)
}

impl Xml {
    /// Takes the text of an element in the annotation.
    fn take(&mut self, path: &[&str], text: &str) {
        let number = || text.parse::<f64>().ok();
        // Some writers have fractions here too.
        let whole = || number().filter(|n| (0.0..=f64::from(u32::MAX)).contains(n)).map_or(0, |n| n as u32);
        match (path, self.objects.last_mut()) {
            (["size", "height"], _) => self.size[0] = whole(),
            (["size", "width"], _) => self.size[1] = whole(),
            (["object", "name"], Some(object)) => text.clone_into(&mut object.name),
            (["object", "difficult"], Some(object)) => object.difficult = number().is_some_and(|n| n != 0.0),
            (["object", "bndbox", side], Some(object)) => {
                let place = ["xmin", "ymin", "xmax", "ymax"].iter().position(|name| name == side);
                if let Some(place) = place {
                    object.corners[place] = number();
                }
            }
            // x1, y1, x2, … or points with x and y.
            (["object", "polygon", name] | ["object", "polygon", "pt", name], Some(object)) => {
                let axis = match name.strip_prefix(['x', 'y']) {
                    Some(rest) if rest.bytes().all(|digit| digit.is_ascii_digit()) => {
                        usize::from(name.starts_with('y'))
                    }
                    _ => return,
                };
                let nowhere = [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY];
                let bounds = object.polygon.get_or_insert(nowhere);
                // A value that is not a number is reported with the box.
                let number = number().unwrap_or(f64::NAN);
                bounds[axis] = if number < bounds[axis] || number.is_nan() { number } else { bounds[axis] };
                bounds[axis + 2] = bounds[axis + 2].max(number);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOG: &str = r#"<?xml version="1.0"?><!-- a dog -->
<annotation>
    <folder>VOC2012</folder><filename>2007_000027.jpg</filename><owner/>
    <size><width>486</width><height>500</height><depth>3</depth></size>
    <object>
        <name>person</name><pose>Unspecified</pose><difficult>0</difficult>
        <bndbox><xmin>174</xmin><ymin>101</ymin><xmax>349.5</xmax><ymax>351</ymax></bndbox>
        <part><name>head</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox></part>
    </object>
    <object>
        <bndbox><ymax>3</ymax><xmin>nan</xmin><ymin>?</ymin></bndbox><difficult>1</difficult><name>cat &amp; d&#111;g</name>
    </object>
</annotation>
"#;

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| {
            let inside = depth - 1;
            format!("<annotation>{}{}</annotation>", "<a>".repeat(inside), "</a>".repeat(inside))
        };
        parse(nested(DEPTH).as_bytes()).unwrap();
        for depth in [DEPTH + 1, 1_000_000] {
            let error = parse(nested(depth).as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains("has more than 64 elements in one another at byte"), "{error}");
        }
    }

    #[test]
    fn texts_are_read_in_what_they_are_written_in() {
        let of = |first: &str, name: &str| {
            format!("{first}<annotation><path>D:\\{name}</path><object><name>{name}</name></object></annotation>")
        };
        let says = |encoding: &str| format!("<?xml version='1.0' encoding=\"{encoding}\" standalone=\"yes\"?>\n");
        let read = |bytes: &[u8]| parse(bytes).map(|found| found.objects[0].name.clone());
        for (label, encoding, name) in [
            ("gb2312", encoding_rs::GBK, "斑马"),
            ("GBK", encoding_rs::GBK, "斑马"),
            ("cp936", encoding_rs::GBK, "斑马"),
            ("gb18030", encoding_rs::GB18030, "é斑马"),
            ("Shift_JIS", encoding_rs::SHIFT_JIS, "しまうま"),
            ("iso-8859-1", encoding_rs::WINDOWS_1252, "zèbre"),
            ("latin-1", encoding_rs::WINDOWS_1252, "zèbre"),
            ("windows-1251", encoding_rs::WINDOWS_1251, "зебра"),
            ("utf-8", UTF_8, "斑马"),
            ("UTF_8", UTF_8, "斑马"),
            ("utf-16", UTF_8, "斑马"),
        ] {
            let text = of(&says(label), name);
            let (bytes, _, bad) = encoding.encode(&text);
            assert!(!bad);
            assert_eq!(read(&bytes).unwrap(), name, "{label}");
        }
        for first in [says("utf-16"), String::new(), says("utf-8")] {
            let text = of(&first, "斑马");
            for order in [u16::to_le_bytes, u16::to_be_bytes] {
                let plain: Vec<u8> = text.encode_utf16().flat_map(order).collect();
                let marked: Vec<u8> = order(0xfeff).into_iter().chain(plain.iter().copied()).collect();
                assert_eq!((read(&plain).unwrap(), read(&marked).unwrap()), ("斑马".to_owned(), "斑马".to_owned()));
            }
            let marked = [b"\xef\xbb\xbf", text.as_bytes()].concat();
            assert_eq!(read(&marked).unwrap(), "斑马");
        }
        let (gbk, ..) = encoding_rs::GBK.encode("<annotation><object><name>斑马</name></object></annotation>");
        let error = read(&gbk).unwrap_err().to_string();
        assert!(error.contains("is not UTF-8") && error.contains("encoding=\"GBK\""), "{error}");
        let error = read(&[says("klingon").as_bytes(), &gbk].concat()).unwrap_err().to_string();
        assert!(error.contains("the encoding klingon"), "{error}");
        let error =
            read(&[says("gbk").as_bytes(), b"<annotation>\xff\xff</annotation>"].concat()).unwrap_err().to_string();
        assert!(error.contains("not in GBK"), "{error}");
    }

    #[test]
    fn boxes_of_polygons_are_read_where_there_are_no_others() {
        let text = "<annotation><object><name>a</name><polygon><x1>3</x1><y1>4.5</y1><x2>9</x2><y2>2</y2><x3>5</x3><y3>7</y3>
            </polygon></object><object><name>b</name><polygon><username>me</username><pt><x>8</x><y>1</y></pt><pt><x>2</x><y>6</y>
            </pt></polygon></object><object><name>c</name><polygon><x1>3</x1><y1>?</y1></polygon></object></annotation>";
        let found = parse(text.as_bytes()).unwrap();
        let polygons: Vec<_> = found.objects.iter().map(|object| object.polygon.unwrap()).collect();
        assert_eq!(polygons[..2], [[3.0, 2.0, 9.0, 7.0], [2.0, 1.0, 8.0, 6.0]]);
        assert!(polygons[2][1].is_nan());
        assert_eq!(parse(DOG.as_bytes()).unwrap().objects[0].polygon, None);
    }

    #[test]
    fn objects_are_read_without_their_parts() {
        let found = parse(DOG.as_bytes()).unwrap();
        assert_eq!((found.size, found.objects.len()), ([500, 486], 2));
        let [person, other] = &found.objects[..] else { panic!("two") };
        assert_eq!(person.corners, [Some(174.0), Some(101.0), Some(349.5), Some(351.0)]);
        assert_eq!((person.name.as_str(), person.difficult), ("person", false));
        assert_eq!((other.name.as_str(), other.difficult), ("cat & dog", true));
        assert!(other.corners[0].is_some_and(f64::is_nan) && other.corners[1..] == [None, None, Some(3.0)]);
    }

    #[test]
    fn damage_is_told() {
        for (text, says) in [
            ("<annotation><size>", "ends early"),
            ("<annotation></size></annotation>", "is broken"),
            ("<annotations></annotations>", "not an annotation of Pascal VOC"),
            ("", "not an annotation of Pascal VOC"),
            ("<annotation>&what;</annotation>", "unknown entity"),
            (
                "<annotation><size><width>4</width><height>3</height></size><object><name/></object></annotation>",
                "object 0 has no name",
            ),
        ] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn any_bytes_are_an_annotation_or_an_error() {
        let mut draws = infeed_core::random::SampleRng::new(5, 6, 7).op(0);
        for _ in 0..20_000 {
            let mut bytes = DOG.as_bytes().to_vec();
            for _ in 0..1 + draws.below(4) {
                let at = draws.below(bytes.len() as u64) as usize;
                bytes[at] =
                    if draws.chance(0.7) { b"<>/&;\"!?-0n "[draws.below(12) as usize] } else { draws.bits() as u8 };
            }
            drop(parse(&bytes));
        }
    }
}
