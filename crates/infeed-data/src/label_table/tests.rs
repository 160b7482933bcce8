//! What tables of strangers say of images: their labels, or why not.

use std::sync::Arc;

use infeed_core::error::{ErrorKind, Result};

use super::{Labels, Names, Table};

fn of(names: &[&str], url: &str, file: &str, bytes: &[u8], only: bool) -> Result<Labels> {
    let names = Names::new(names, url);
    Table::parse(file, bytes, &names, None)?.labels_of(&names, None, only)
}

/// Labels, as numbers or as classes.
fn told(names: &[&str], text: &str) -> String {
    tell(of(names, "/data/set", "list", text.as_bytes(), false))
}

fn tell(found: Result<Labels>) -> String {
    match found {
        Err(error) => error.to_string(),
        Ok(Labels { of, classes, .. }) => {
            let words: Vec<String> = of.iter().map(ToString::to_string).collect();
            let classes = classes.map_or(String::new(), |classes| format!(" of {}", classes.join(" ")));
            words.join(" ") + &classes
        }
    }
}

const AB: [&str; 2] = ["a.jpg", "b,c.jpg"];

#[test]
fn csv_is_read_with_and_without_a_header() {
    for text in [
        "a.jpg,1\n\"b,c.jpg\",2\n",
        "file,label\r\na.jpg,1\r\n\"b,c.jpg\",2\r\n",
        "file,label\ra.jpg,1\r\"b,c.jpg\",2\r",
        "label,split,Image\n1,x,a.jpg\n2,y,\"b,c.jpg\"",
        "\u{feff}id;breed\na.jpg; 1\nb,c.jpg;2\n",
        "class\timage_id\n1\ta.jpg\n2\tb,c.jpg\n",
        "# of 2026\n\n\"a.jpg\",\"1\",\n\n\"b,c.jpg\",\"2\",\n",
        "what,who,,\n1,a.jpg,,\n2,\"b,c.jpg\",,\n",
        "a.jpg|1\nb,c.jpg|2",
        "  a.jpg ; 1.0\n  b,c.jpg; 2.0",
    ] {
        assert_eq!(told(&AB, text), "1 2", "{text:?}");
    }
    let wide = |unit: fn(u16) -> [u8; 2]| -> Vec<u8> {
        "\u{feff}file,label\r\na.jpg,1\r\n\"b,c.jpg\",2".encode_utf16().flat_map(unit).collect()
    };
    for bytes in [wide(u16::to_le_bytes), wide(u16::to_be_bytes)] {
        assert_eq!(tell(of(&AB, "x", "x.csv", &bytes, false)), "1 2");
    }
    // A first row with a file is no header, whatever its class is called.
    assert_eq!(told(&["a.jpg"], "a.jpg,name\n"), "0 of name");
    assert_eq!(told(&["a.jpg", "b.jpg"], "a,target\nb,class\n"), "1 0 of class target");
    // An image may be called like a comment.
    assert_eq!(told(&["#1.jpg", "2.jpg"], "#1.jpg,7\n2.jpg,8\n"), "7 8");
}

#[test]
fn a_header_of_any_words_is_told_by_what_stands_below() {
    let twelve: Vec<String> = (0..12).map(|i| format!("{i:02}.png")).collect();
    let names: Vec<&str> = twelve.iter().map(String::as_str).collect();
    let numbers = (0..12).map(|i| i.to_string()).collect::<Vec<_>>().join(" ");
    for (header, between) in [("id_code,diagnosis\n", ","), ("scan\tgrade\n", "\t"), ("", ","), ("wo was\n", " ")] {
        let rows = |ending: &str| (0..12).map(|i| format!("{i:02}{ending}{between}{i}\n")).collect::<String>();
        assert_eq!(told(&names, &format!("{header}{}", rows(""))), numbers, "{header}");
        assert_eq!(told(&names, &format!("{header}{}", rows(".png"))), numbers, "{header}");
    }
    // The labels first, and names of images that are numbers as well.
    let turned: String = (0..12).map(|i| format!("{},{i}\n", i / 2)).collect();
    assert_eq!(told(&names, &format!("grade,scan\n{turned}")), "0 0 1 1 2 2 3 3 4 4 5 5");
    // Both columns name images: one does as they are called.
    let (padded, turned) = (["01.png", "02.png"], "was,wer\n2,01\n1,02\n");
    assert_eq!(told(&padded, turned), "2 1");
    // Words below as well: nothing is called as the first line says.
    assert_eq!(told(&AB, "scan;finding\na.jpg;cat\nb,c.jpg;dog"), "0 1 of cat dog");
    assert_eq!(told(&["a.jpg", "b.jpg"], "scan,finding\na,cat\nb,dog"), "0 1 of cat dog");
    // A record of an image that is not there.
    assert_eq!(told(&["a.jpg", "b.jpg"], "z,dog\na,cat\nb,dog"), "0 1 of cat dog");
    assert_eq!(told(&["a.jpg", "b.jpg"], "z.jpg,eel\na.jpg,cat\nb.jpg,dog"), "0 1 of cat dog eel");
}

#[test]
fn of_several_columns_the_one_with_images_and_the_one_with_labels_are_taken() {
    let names = ["1.jpg", "2.jpg"];
    for (text, want) in [
        ("id,filename,label,extra\n7,2.jpg,5,x\n8,1.jpg,6,y", "6 5"),
        ("lesion,picture,label\n1,2,5\n1,1,6", "6 5"),
        (",file,grade\n0,1.jpg,5\n1,2.jpg,6", "5 6"),
        ("Unnamed: 0,file,grade\n0,1.jpg,5\n1,2.jpg,6", "5 6"),
        ("image_id,path,grade\n10,1.jpg,5\n11,2.jpg,6", "5 6"),
        ("path,label,label_name\n1.jpg,1,dog\n2.jpg,0,cat", "1 0"),
        // As MXNet lists them.
        ("0\t5.000000\t1.jpg\n1\t6.000000\t2.jpg\n", "5 6"),
        ("7\t5\t1.jpg\n3\t6\t2.jpg\n9\t6\tz.jpg\n", "5 6"),
        ("Filename;Width;ClassId\n1.ppm;7;5\n2.ppm;8;6", "5 6"),
        ("image_id class_id super_class_id path\n1 5 1 x/1.jpg\n2 6 1 x/2.jpg", "5 6"),
        ("file,label\n1.jpg,dog\nfile,label\n2.jpg,cat", "1 0 of cat dog"),
        ("image_id,label\n2,1\n1,2\n", "2 1"),
        ("label,image_id\n2,1\n1,2\n", "2 1"),
        // As spreadsheets write the separator.
        ("sep=;\nfile;label\n1.jpg;dog\n2.jpg;cat", "1 0 of cat dog"),
        // Names of classes with blanks.
        ("1 Boeing 717\n2 Airbus A 300\n", "1 0 of Airbus A 300 Boeing 717"),
        ("image,MEL,NV,BCC\n2,0.0,0.0,1.0\n1,0.0,1.0,0.0", "1 2 of MEL NV BCC"),
    ] {
        assert_eq!(told(&names, text), want, "{text:?}");
    }
    for (text, says) in [
        (
            "image,dx,age\n1,nv,40\n2,mel,50",
            "which column holds the labels? The table has dx, age; set label_column(\"dx\")",
        ),
        (
            "1.jpg,3,4\n2.jpg,5,6",
            "the table has 3 columns and no header; set label_column(\"1\"), the number of a column",
        ),
        ("1.jpg,a|b\n2.jpg,a", "the label `a|b` of `1.jpg` is several labels"),
        ("1.jpg\ta;b\n2.jpg\ta", "the label `a;b`"),
        ("1.jpg,\"[1, 2]\"\n2.jpg,[1]", "the label `[1, 2]`"),
        ("1.jpg m/1.png\n2.jpg m/2.png", "the label `m/1.png` of `1.jpg` is several labels, or the name of a file"),
        ("0\t1\t0\t1.jpg\n1\t0\t1\t2.jpg\n", "the table has 4 columns and no header"),
        ("image,a,b\n1,1,1\n2,0,1", "line 2 has 2 classes set instead of one"),
        ("1.jpg,3\n2.jpg,5,6", "line 2 has 3 columns, the first line 2"),
        ("1.jpg,3\n2.jpg\n", "line 2 has 1 columns"),
        ("1.jpg,3\n,4\n", "line 2 names no file"),
        ("just\nwords\n", "line 1 has 1 columns"),
        ("file,width,height\n1.jpg,1,2\n", "width, height"),
    ] {
        let error = told(&names, text);
        assert!(error.contains(says), "{text:?}: {error}");
    }
    let known = Names::new(&names, "");
    let column = |text: &str, column| {
        let table = Table::parse("x.csv", text.as_bytes(), &known, Some(column));
        tell(table.and_then(|table| table.labels_of(&known, None, false)))
    };
    assert_eq!(column("image,dx,label\n1,nv,40\n2,mel,50", "dx"), "1 0 of mel nv");
    assert_eq!(column("dx,image\nnv,1\nmel,2", "dx"), "1 0 of mel nv");
    assert!(column("image,dx\n1,nv", "dz").contains("there is no column `dz`; there are image, dx"));
    assert!(column("1.jpg,nv", "dx").contains("the table has no header; give the number of a column, from 0 to 1"));
    assert_eq!(column("1.jpg,3,4\n2.jpg,5,6", "2"), "4 6");
    assert_eq!(column("1 3 0 7\n2 5 1 8", "3"), "7 8");
    // The lists of CelebA.
    let celeba = "2\nOval_Face Bald \n1.jpg  1 -1\n2.jpg -1  1\n";
    assert_eq!(column(celeba, "Bald"), "-1 1");
    assert!(column(celeba, "Hair").contains("there are file, Oval_Face, Bald"));
    assert!(told(&names, celeba).contains("which column holds the labels? The table has Oval_Face, Bald"));
    assert_eq!(column("2\nimage_id x_1 y_1\n2.jpg 3 4\n1.jpg 5 6\n", "x_1"), "5 3");
    assert_eq!(told(&names, "2\nimage_id kind\n2.jpg a\n1.jpg b\n"), "1 0 of a b");
    assert!(
        told(&names, "3\nimage_id kind\n2.jpg a\n1.jpg b\n").contains("the first line counts 3 rows, and there are 2")
    );
}

#[test]
fn lists_by_blanks_are_read() {
    let names = ["a/my cat.png", "b/x.png"];
    for text in [
        "a/my cat.png 3\nb/x.png 5\n",
        "a/my cat.png \t 3\r\n\r\nb/x.png  5  \r\n",
        "/a/my cat.png 3\n/b/x.png 5\n",
        "3 a/my cat.png\n5 b/x.png\n",
        "\"a/my cat.png\" 3\n'b/x.png' 5\n",
        "# of Caffe\na/my cat.png 3\nb/x.png 5",
    ] {
        assert_eq!(told(&names, text), "3 5", "{text:?}");
    }
    assert_eq!(told(&names, "a/my cat.png cat\nb/x.png dog\n"), "0 1 of cat dog");
    assert_eq!(told(&names, "a/my cat.png -1\nb/x.png  1\n"), "-1 1");
    // Commas in some names, and in all.
    assert_eq!(told(&["a,1.png", "b.png"], "a,1.png 3\nb.png 5\n"), "3 5");
    assert_eq!(told(&["a,1.png", "b,1.png"], "a,1.png 3\nb,1.png 5\n"), "3 5");
    assert_eq!(told(&["1.png", "2.png"], "0 3 1.png\n1 5 2.png\n"), "3 5");
}

#[test]
fn json_is_read_in_its_shapes() {
    for text in [
        r#"{"a.jpg": 1, "b.jpg": 2}"#,
        r#"[{"file": "a.jpg", "label": 1}, {"file": "b.jpg", "label": 2}]"#,
        r#"[{"who": "b.jpg", "what": 2}, {"who": "a.jpg", "what": 1, "box": [1, 2]}]"#,
        r#"[["a.jpg", 1], ["b.jpg", 2]]"#,
        r#"{"labels": [["a.jpg", 1], ["b.jpg", 2]]}"#,
        r#"{"version": 2, "data": [{"file": "a.jpg", "label": 1}, {"file": "b.jpg", "label": 2}]}"#,
        r#"{"a.jpg": {"label": 1, "split": "train"}, "b.jpg": {"label": 2, "split": "test"}}"#,
        r#"{"1": ["a.jpg"], "2": ["b.jpg"]}"#,
        r#"{"classes": ["x", "y", "z"], "labels": {"a": 1, "b": 2}}"#,
        r#"{"image": {"0": "a.jpg", "1": "b.jpg"}, "label": {"0": 1, "1": 2}}"#,
        r#"{"images": [{"id": 7, "file_name": "a.jpg"}, {"id": 8, "file_name": "b.jpg"}], "categories": [],
            "annotations": [{"id": 0, "image_id": 8, "category_id": 2}, {"id": 1, "image_id": 7, "category_id": 1}]}"#,
        "{\"file\": \"a.jpg\", \"label\": 1}\n\n{\"file\": \"b.jpg\", \"label\": 2}\n",
        "[\"a.jpg\", 1]\n[\"b.jpg\", 2]",
    ] {
        assert_eq!(told(&["a.jpg", "b.jpg"], text), "1 2", "{text}");
    }
    let line = br#"{"file": "a.jpg", "label": 1}"#;
    assert_eq!(tell(of(&["a.jpg"], "x", "x.jsonl", line, false)), "1");
    assert_eq!(told(&["a.jpg", "b.jpg"], r#"{"a.jpg": true, "b.jpg": false}"#), "1 0 of false true");
    assert_eq!(told(&["[a].jpg", "b.jpg"], "[a].jpg,1\nb.jpg,2"), "1 2");
    for (text, says) in [
        ("{", "not JSON"),
        ("[3]", "entry 0"),
        (r#"[["a", 1], {"file": "a"}]"#, "entry 1"),
        (r#"{"a": 1, "b": null}"#, "entry 1 has no file, or no label"),
        (r#"{"labels": null}"#, "entry 0"),
        ("7", "neither"),
        (r#"{"images": [], "annotations": [{"image_id": 1, "category_id": 2, "bbox": [1, 2, 3, 4]}]}"#, "COCO's JSON"),
        (
            r#"{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 2, "category_id": 3}]}"#,
            "annotation 0",
        ),
        (r#"{"a.jpg": ["cat", "dog"]}"#, "two labels, cat and dog"),
    ] {
        let error = tell(of(&["a.jpg"], "x", "x.json", text.as_bytes(), false));
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn names_that_are_written_otherwise_are_found_where_one_is_meant() {
    let deep = ["images/cats/1.jpg", "images/dogs/2.jpg"];
    for (names, text) in [
        (&deep[..], "1.jpg,3\n2.jpg,5"),
        (&deep, "cats/1.jpg,3\ndogs/2.jpg,5"),
        (&deep, "1,3\n2,5"),
        (&deep, "set/images/cats/1.jpg,3\nset/images/dogs/2.jpg,5"),
        (&deep, "/data/set/images/cats/1.jpg,3\n/data/set/images/dogs/2.jpg,5"),
        (&deep, "s3://bucket/set/images/cats/1.jpg,3\ns3://bucket/set/images/dogs/2.jpg,5"),
        (&deep, "C:\\x\\images\\cats\\1.jpg,3\nC:\\x\\images\\dogs\\2.jpg,5"),
        (&deep, "./images/cats/1.JPG,3\n./images//dogs/2.jpg,5"),
        (&deep, "images/cats/1.png,3\nimages/dogs/2.gif,5"),
        (&["007.png", "0010.png"], "7,3\n10,5"),
        (&["a/007.png", "b/007.png"], "a/7.png,3\nb/7.png,5"),
        (&["1.jpg", "2.jpg"], "/elsewhere/train/1.jpg,3\n/elsewhere/train/2.jpg,5"),
        // Those of the dataset's own place, and of another.
        (&["1.jpg", "2.jpg"], "set/1.jpg,3\nset/2.jpg,5\nval/1.jpg,7\nval/2.jpg,8"),
        // Without an ending that has dots, and beside others of the same name.
        (&["img.v2.png", "img.v3.png"], "img.v2,3\nimg.v3,5"),
        (&["a.jpg", "a.png"], "a.jpg,3\na.png,5"),
        (&["a.jpg", "b.jpg"], "a.jpg,3\na.png,4\nb.jpg,5"),
    ] {
        assert_eq!(told(names, text), "3 5", "{text:?}");
    }
    for (names, text, says) in [
        (&["a/1.jpg", "b/1.jpg"][..], "1.jpg,3\n2.jpg,5", "`1.jpg` may be `a/1.jpg` or `b/1.jpg`"),
        (&["a.jpg", "a.png"], "a,3\nb,5", "`a` may be `a.jpg` or `a.png`"),
        (&["1.jpg", "2.jpg"], "x/1.jpg,3\ny/1.jpg,3\ny/2.jpg,4", "`x/1.jpg` and `y/1.jpg` may both be `1.jpg`"),
        (&["07.jpg", "1.jpg"], "007,3\n7,4\n1,5", "`007` and `7` may both be `07.jpg`"),
        (
            &["x/1.jpg", "x/2.jpg"],
            "y/1.jpg,3\ny/2.jpg,5",
            "none of 2 images is in the table: its first name is `y/1.jpg`, the first image is `x/1.jpg`",
        ),
        (&["1.jpg"], "file,label\n", "none of 1 images is in the table: it is empty"),
        (&["1.jpg", "2.jpg"], "1.jpg,3\n1.jpg,4\n2.jpg,5", "`1.jpg` has two labels, 3 and 4"),
    ] {
        let error = told(names, text);
        assert!(error.contains(says), "{text:?}: {error}");
    }
}

#[test]
fn a_table_of_some_images_takes_them_where_that_is_asked() {
    let names = ["0.png", "1.png", "2.png", "3.png"];
    let text = b"image_id,label\n1,1\n0,7\n1,1\n";
    let some = of(&names, "x", "x.csv", text, true).unwrap();
    assert_eq!((&some.of[..], some.kept), (&[7, 1][..], Some(vec![0, 1])));
    let error = of(&names, "x", "x.csv", text, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let says = "2 of 4 images have no label, the first is `2.png`; add them, named relative to the dataset, or set \
        labels_only(true), which reads only the listed ones";
    assert!(error.to_string().contains(says), "{error}");
    let all = of(&names[..2], "x", "x.csv", text, true).unwrap();
    assert_eq!(all.kept, None);
    assert!(of(&["x.png"], "x", "x.csv", text, true).unwrap_err().to_string().contains("none of 1 images"));
}

#[test]
fn labels_are_numbers_or_indices_of_the_sorted_or_the_given_classes() {
    let rows = |pairs: &[(&str, &str)]| Table::new(pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())));
    let names = Names::new(&["a.jpg", "b.jpg", "c.jpg"], "");
    let given: Arc<[String]> = ["dog".to_owned(), "cat".to_owned()].into();
    let told = |pairs: &[(&str, &str)], given: Option<&Arc<[String]>>| {
        tell(rows(pairs).labels_of(&names, given.cloned(), false))
    };
    assert_eq!(told(&[("a", "dog"), ("./b", "cat"), ("c", "7")], None), "2 1 0 of 7 cat dog");
    let error = told(&[("a", "dog"), ("b", "7"), ("c", "cat")], Some(&given));
    assert!(error.contains("class `7` of `b` is not among the 2 given classes"), "{error}");
    assert_eq!(told(&[("a", "cat"), ("b", "0"), ("c", "dog")], Some(&given)), "1 0 0 of dog cat");
    assert_eq!(told(&[("a", "-1"), ("b", "12"), ("c", "2")], None), "-1 12 2");
    // Integers of a table that had gaps.
    assert_eq!(told(&[("a", "1.0"), ("b", "12.0"), ("c", "-2")], None), "1 12 -2");
    let named: Arc<[String]> = ["cat".to_owned(), "NA".to_owned()].into();
    assert_eq!(told(&[("a", "cat"), ("b", "NA"), ("c", "cat")], Some(&named)), "0 1 0 of cat NA");
    for missing in ["nan", "NaN", "NA", "N/A", "<NA>"] {
        let error = told(&[("a", "cat"), ("b", missing), ("c", "dog")], None);
        assert!(error.contains(&format!("the label of `b` is `{missing}`: it has no value")), "{error}");
    }
    for several in ["0,1", "3 4", "2;5", "1|2"] {
        let error = told(&[("a", "0"), ("b", several), ("c", "1")], None);
        assert!(error.contains(&format!("the label `{several}` of `b` is several numbers")), "{error}");
    }
    for (label, says) in [
        ("2.5", "the label 2.5 of `b` is not an integer"),
        ("18446744073709551615", "the label 18446744073709551615 of `b` is not an integer of 64 bits"),
        ("", "the label of `b` is empty"),
        ("NA", "the label of `b` is `NA`: it has no value"),
        ("cat", "the label `cat` of `b` is not a number, but most others are"),
    ] {
        let error = told(&[("a", "10.0"), ("b", label), ("c", "2")], None);
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_table_of_another_system_spells_names_as_it_does() {
    let names = ["M\u{fc}ller.jpg", "Zoe\u{308}.jpg"];
    let found = of(&names, "x", "labels", "Mu\u{308}ller.jpg,3\nZo\u{eb},4\n".as_bytes(), false).unwrap();
    assert_eq!(found.of, [3, 4]);
}

#[test]
fn what_is_no_table_is_told() {
    let error = |bytes: &[u8]| tell(of(&["a.jpg"], "x", "labels", bytes, false));
    assert!(error(b"\xff\xd8\xff\xe0,1").contains("UTF-8"));
    assert!(error(b"\xff\xfe\x00\xd8\x00\x00").contains("UTF-16"));
    assert!(error(b"a.jpg\0,1").contains("not a text"));
    assert!(error(b"").contains("it is empty"));
}

#[test]
fn any_bytes_are_labels_or_an_error() {
    let mut draws = infeed_core::random::SampleRng::new(5, 6, 7).op(0);
    let seeds = [
        &b"file,label\na.png,1\n\"b.png\",2\n# c\n"[..],
        b"a.png 1\nb.png\t2\n",
        b"[{\"file\": \"a.png\", \"n\": 1.5}, {\"file\": \"b.png\", \"n\": 2}]",
        b"{\"labels\": [[\"a.png\", 1], [\"b.png\", 2]]}",
        b"x;a;b\na/a.png;0;1\na/b.png;1;0\n",
    ];
    for _ in 0..20_000 {
        let mut bytes = seeds[draws.below(5) as usize].to_vec();
        for _ in 0..1 + draws.below(4) {
            let at = draws.below(bytes.len() as u64) as usize;
            let likely = b",\"\n{}[]:;x0./\\ \t#";
            bytes[at] = if draws.chance(0.5) { likely[draws.below(17) as usize] } else { draws.bits() as u8 };
        }
        let _ = of(&["a.png", "b/b.png", "c/007.png"], "s3://x//y", "x", &bytes, draws.chance(0.5));
    }
}

#[test]
fn a_table_of_another_split_has_no_labels_of_this_one() {
    let names = ["0.jpg", "1.jpg"];
    let found = |url: &str, text: &str| tell(of(&names, url, "list", text.as_bytes(), false));
    let val = "val/0.jpg,dog\nval/1.jpg,cat";
    assert_eq!(found("/data/val", val), "1 0 of cat dog");
    assert_eq!(found("/data/val2017", &val.replace("val/", "/elsewhere/Val/")), "1 0 of cat dog");
    assert_eq!(found("/data/photos", val), "1 0 of cat dog");
    let error = found("/data/train", val);
    assert!(error.contains("none of 2 images is in the table: its first name is `val/0.jpg`"), "{error}");
}
