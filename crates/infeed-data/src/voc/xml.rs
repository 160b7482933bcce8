//! One XML of Pascal VOC: the size of the image, and the objects in it.

use infeed_core::error::{Error, Result};
use quick_xml::{Reader, escape::resolve_predefined_entity, events::Event};

/// What one file says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Xml {
    /// Height and width; 0 for what is not said, as many a tool leaves them.
    pub(super) size: [u32; 2],
    pub(super) objects: Vec<Object>,
}

/// One thing in the image.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Object {
    pub(super) name: String,
    /// `xmin`, `ymin`, `xmax`, `ymax` as they are written: pixels are counted from 1, and the last is inside.
    pub(super) corners: [Option<f64>; 4],
    pub(super) difficult: bool,
}

/// Reads the file. Numbers of boxes may be anything: what they are is told when the image comes.
pub(super) fn parse(bytes: &[u8]) -> Result<Xml> {
    let mut reader = Reader::from_reader(bytes);
    let mut found = Xml::default();
    // Names of the elements that are open, and the text of the innermost.
    let mut path: Vec<String> = Vec::new();
    let mut text = String::new();
    let mut is_annotation = false;
    loop {
        let at = reader.buffer_position();
        let wrong = |what: &str| Error::corrupt(format!("the XML {what} at byte {at}"));
        match reader.read_event().map_err(|e| wrong("is broken").with_source(e))? {
            Event::Start(tag) => {
                let name = tag.name();
                path.push(String::from_utf8_lossy(name.as_ref()).into_owned());
                text.clear();
                let open: Vec<&str> = path.iter().map(String::as_str).collect();
                is_annotation |= open == ["annotation"];
                if open == ["annotation", "object"] {
                    found.objects.push(Object::default());
                }
            }
            Event::End(_) => {
                // Parts of objects have boxes and names of their own, deeper down.
                let open: Vec<&str> = path.iter().map(String::as_str).collect();
                if let ["annotation", rest @ ..] = &open[..] {
                    found.take(rest, text.trim());
                }
                path.pop();
                text.clear();
            }
            Event::Text(part) => text += &part.decode().map_err(|e| wrong("is not UTF-8").with_source(e))?,
            Event::CData(part) => text += &part.decode().map_err(|e| wrong("is not UTF-8").with_source(e))?,
            Event::GeneralRef(name) => {
                let letter = name.resolve_char_ref().map_err(|e| wrong("is broken").with_source(e))?;
                match letter {
                    Some(letter) => text.push(letter),
                    None => {
                        let name = name.decode().map_err(|e| wrong("is not UTF-8").with_source(e))?;
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
        return Err(Error::corrupt("this is no annotation of Pascal VOC").hint("it begins with <annotation>"));
    }
    if let Some(at) = found.objects.iter().position(|object| object.name.is_empty()) {
        return Err(Error::corrupt(format!("object {at} has no name")).hint("write its class as <name>"));
    }
    Ok(found)
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
            ("<annotations></annotations>", "no annotation of Pascal VOC"),
            ("", "no annotation of Pascal VOC"),
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
