//! What may be meant in another way than it is read gets a warning that names it.

use std::{fs, path::Path};

use crate::command::{run, text};

/// A tree of small images; `name: text` is another file.
fn tree(dir: &Path, files: &[&str]) {
    let mut png = std::io::Cursor::new(Vec::new());
    image::RgbImage::new(8, 8).write_to(&mut png, image::ImageFormat::Png).unwrap();
    for file in files {
        let (name, content) = file.split_once(": ").map_or((*file, None), |(name, text)| (name, Some(text)));
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content.map_or(&png.get_ref()[..], str::as_bytes)).unwrap();
    }
}

/// The lines of `inspect` that begin with this word.
fn lines(files: &[&str], args: &[&'static str], word: &str) -> (Option<i32>, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path(), files);
    let labels = dir.path().join("labels.csv").display().to_string();
    let list = dir.path().join("list.txt").display().to_string();
    let path = |arg: &&'static str| match *arg {
        "LABELS" => labels.clone(),
        "LIST" => list.clone(),
        arg => arg.to_owned(),
    };
    let args: Vec<String> = args.iter().map(path).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = run(&[&["inspect", dir.path().to_str().unwrap()], &args[..]].concat());
    let said = text(&output.stderr);
    (output.status.code(), said.lines().filter(|line| line.starts_with(word)).map(str::to_owned).collect())
}

#[test]
fn folders_that_may_be_no_classes_are_named() {
    let cases: [(&[&str], &[&str], &str); 21] = [
        (&["trainA/1.png", "testA/1.png"], &[], "may be splits are taken for classes; --split testA reads one"),
        (&["train_mini/a/1.png", "val/a/1.png"], &[], "may be splits"),
        (&["A/train/1.png", "A/test/1.png", "B/train/1.png", "B/test/2.png"], &[], "splits below the class folders"),
        (&["images/1.png", "vessel/1.png", "other/2.png"], &[], "named like the images of all classes"),
        (&["images_001/1.png", "images_002/2.png"], &[], "named like parts of one set of images"),
        (&["photo/cat/1.png", "sketch/cat/1.png"], &[], "open one of the first folders"),
        (&["yes/1.png", "no/1.png", "scans/yes/1.png"], &[], "contains one of the name of the class `yes`"),
        (&["c/1.png", "c/1_L.png", "c/2.png", "c/2_L.png"], &[], "if they are masks, set --mask-files '{stem}_L.png'"),
        (&["CXR/1.png", "ManualMask/left/1.png"], &[], "a folder that may hold masks or labels of other images"),
        (
            &["test/good/0.png", "test/bad/0.png", "ground_truth/bad/0_mask.png", "train/good/1.png"],
            &["--split", "test"],
            "images in a folder of masks are left out",
        ),
        (
            &["train/a/1.png", "train/b/2.png", "val/b/3.png"],
            &["--split", "val"],
            "another split has a class that this one lacks",
        ),
        (
            &["1.png", "2.png", "3.png", "labels.csv: file,label\n1.png,scab\n2.png,rust\n3.png,scab rust\n"],
            &["--labels", "LABELS"],
            "a class consists of the names of others",
        ),
        (&["1.png", "2.png", "list.txt: 1"], &["--record-list", "LIST"], "numbers in the list are those of records"),
        (&["Cat/1.png", "cat/2.png", "dog/3.png"], &[], "names of classes differ only in case or blanks"),
        (
            &["1.png", "2.png", "labels.csv: file,label\n1.png,-1\n2.png,1\n"],
            &["--labels", "LABELS"],
            "labels are -1 and 1, and stay as they are",
        ),
        (
            &["1.png", "2.png", "labels.csv: file,label\n1.png,dog\n2.png,Dog\n"],
            &["--labels", "LABELS"],
            "names of classes differ only in case or blanks",
        ),
        (
            &["train/a.png", "train_labels/a_L.png", "val/b.png"],
            &["--split", "train"],
            "give the pattern of their names",
        ),
        (
            &["train/1.png", "train_masks/1_mask.png", "test/2.png"],
            &["--split", "test"],
            "without masks: they have none",
        ),
        (
            &["train/1.png", "val/1.png", "labels.csv: file,label\ntrain/1.png,1\nval/1.png,2\n"],
            &["--labels", "LABELS"],
            "images of several splits have labels and are read together",
        ),
        (
            &["1.png", "labels.csv: file,label,split\n1.png,1,train\n"],
            &["--labels", "LABELS"],
            "the split of each image",
        ),
        (
            &["1.png", "labels.csv: file,label,x_min\n1.png,1,3\n"],
            &["--labels", "LABELS"],
            "a column that may be boxes",
        ),
    ];
    for (files, args, words) in cases {
        let (code, warnings) = lines(files, args, "warning: ");
        assert_eq!(code, Some(0), "{files:?}: {warnings:?}");
        assert!(warnings.iter().any(|line| line.contains(words)), "{files:?}: {warnings:?}");
    }
}

#[test]
fn usual_classes_have_no_warning() {
    let cases: [&[&str]; 14] = [
        &["FaceMasks/1.png", "SheetMasks/2.png"],
        &["PNGImages/a1.png", "PedMasks/a1_mask.png", "readme.txt: x"],
        &["1.jpg", "1_flipped.jpg", "2.jpg", "2_flipped.jpg"],
        &["a/1.png", "b/2.png", "sample_submission.csv: id,label"],
        &["A/1.png", "a/2.png"],
        &["cat/1.png", "dog/1.png"],
        &["0/1.png", "1/1.png", "2/1.png"],
        &["c0/1.png", "c1/1.png"],
        &["n01440764/1.png", "n01443537/1.png"],
        &["training/1.png", "tram/1.png", "bus/1.png"],
        &["trains/1.png", "valley/1.png", "testament/1.png"],
        &["bottle/good/1.png", "cable/bent/1.png"],
        &["run/video1/1.png", "jump/video2/1.png"],
        &["001.Albatross/1.png", "002.Auklet/1.png"],
    ];
    for files in cases {
        let (code, warnings) = lines(files, &[], "warning: ");
        assert!(code == Some(0) && warnings.is_empty(), "{files:?}: {warnings:?}");
    }
}

#[test]
fn what_can_only_be_meant_in_another_way_is_refused() {
    let cases: [(&[&str], &str); 3] = [
        (&["Train/0/1.png", "Test/0/1.png", "Meta/0.png"], "Meta, Test, Train hold splits"),
        (
            &["a/images/1.png", "a/masks/p.png", "b/images/2.png", "b/masks/q.png"],
            "`a/masks/p.png` is in a folder of masks",
        ),
        (&["depth/0.png", "rgb/0.png"], "tell masks by a pattern of their names with --mask-files; or"),
    ];
    for (files, words) in cases {
        let (code, errors) = lines(files, &[], "error: ");
        assert!(code != Some(0) && errors.iter().any(|line| line.contains(words)), "{files:?}: {errors:?}");
    }
}

/// A tar of these members, each with its type.
fn tar_of(dir: &Path, members: &[(&str, tar::EntryType)]) {
    let mut tar = tar::Builder::new(fs::File::create(dir.join("a.tar")).unwrap());
    for (name, kind) in members {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(*kind);
        let content = if kind.is_file() { &b"text"[..] } else { b"" };
        header.set_size(content.len() as u64);
        if !kind.is_file() {
            header.set_link_name("0.txt").unwrap();
        }
        tar.append_data(&mut header, name, content).unwrap();
    }
    tar.into_inner().unwrap();
}

#[test]
fn members_that_are_no_samples_of_their_own_are_named() {
    let file = tar::EntryType::Regular;
    let cases: [(&[(&str, tar::EntryType)], &str); 4] = [
        (&[("0.txt", file), ("9.txt", tar::EntryType::Link)], "1 members are links without bytes of their own"),
        (&[("0.txt", file), ("9.txt", tar::EntryType::Symlink)], "pack the tar without links"),
        (&[("0.txt", file), ("0_mask.txt", file)], "the sample `0_mask` is named like a mask of another, such as `0`"),
        (&[("images/0.txt", file), ("masks/0.txt", file)], "the sample `masks/0` is named like a mask"),
    ];
    for (members, words) in cases {
        let dir = tempfile::tempdir().unwrap();
        tar_of(dir.path(), members);
        fs::write(dir.path().join("b.tar.gz"), "packed").unwrap();
        let said = text(&run(&["inspect", dir.path().to_str().unwrap()]).stderr);
        for words in [words, "compressed tars next to the others are not read"] {
            assert!(said.contains(words), "{members:?}: {said}");
        }
    }
}

#[test]
fn a_tar_that_may_be_cut_between_two_members_is_named() {
    let dir = tempfile::tempdir().unwrap();
    tar_of(dir.path(), &[("0.txt", tar::EntryType::Regular), ("1.txt", tar::EntryType::Regular)]);
    let path = dir.path().join("a.tar");
    let said = || text(&run(&["inspect", path.to_str().unwrap()]).stderr);
    let words = "tars have no zeros at their ends";
    assert!(!said().contains(words));
    fs::File::options().write(true).open(&path).unwrap().set_len(1024).unwrap();
    assert!(said().contains(words), "{}", said());
}

#[test]
fn tars_that_may_be_classes_are_named() {
    let dir = tempfile::tempdir().unwrap();
    for class in ["n01", "n02"] {
        let folder = dir.path().join(class);
        tree(&folder, &["image.png"]);
        let mut tar = tar::Builder::new(fs::File::create(dir.path().join(format!("{class}.tar"))).unwrap());
        tar.append_path_with_name(folder.join("image.png"), format!("{class}_7.png")).unwrap();
        tar.into_inner().unwrap();
        fs::remove_dir_all(folder).unwrap();
    }
    fs::write(dir.path().join("labels.csv"), "n01_7,1").unwrap();
    let said = text(&run(&["inspect", dir.path().to_str().unwrap()]).stderr);
    for words in ["if each tar is a class, unpack each into a folder of its name", "1 .csv, the first is `labels.csv`"]
    {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn shards_that_are_missing_or_of_other_sets_are_named() {
    let cases: [(&[&str], &str); 4] = [
        (&["x-00000-of-00003.tar", "x-00002-of-00003.tar"], "2 of the 3 shards that their names count are there"),
        (&["a/x-00000-of-00001.tar", "b/x-00000-of-00001.tar"], "shards of one name in several folders"),
        (&["label=cat/0.tar", "label=dog/0.tar"], "values in names of folders are no fields"),
        (&["0.tar", "val/0.tar"], "shards of a split and others are read together; --split val chooses"),
    ];
    for (names, words) in cases {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            let folder = dir.path().join(name).parent().unwrap().to_owned();
            fs::create_dir_all(&folder).unwrap();
            tar_of(&folder, &[("0.txt", tar::EntryType::Regular)]);
            fs::rename(folder.join("a.tar"), dir.path().join(name)).unwrap();
        }
        let said = text(&run(&["inspect", dir.path().to_str().unwrap()]).stderr);
        assert!(said.contains(words), "{names:?}: {said}");
    }
}

#[test]
fn volumes_of_one_patient_at_two_places_are_named() {
    let file = |directions: &str, origin: &str| {
        let header = format!(
            "NRRD0004\ntype: uint8\ndimension: 3\nspace: left-posterior-superior\nsizes: 4 3 2\nencoding: raw\n\
             space directions: {directions}\nspace origin: {origin}\n\n"
        );
        [header.as_bytes(), &[1; 24]].concat()
    };
    let straight = "(1,0,0) (0,1,0) (0,0,3)";
    let cases = [
        (straight, "(0,0,0)", false),
        (straight, "(0,0.05,0)", false),
        (straight, "(0,0,1.5)", true),
        ("(-1,0,0) (0,1,0) (0,0,3)", "(0,0,0)", true),
        ("(1,0,0) (0,1,0) (0,0,4)", "(0,0,0)", true),
    ];
    for (directions, origin, is_named) in cases {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("p1_ct.nrrd"), file(straight, "(0,0,0)")).unwrap();
        fs::write(dir.path().join("p1_mask.nrrd"), file(directions, origin)).unwrap();
        let output = run(&["inspect", dir.path().to_str().unwrap()]);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains("files of 1 patients are not at the same place"), is_named, "{directions}: {said}");
        let args = ["inspect", dir.path().to_str().unwrap(), "--pattern", "{patient}.nrrd"];
        let said = text(&run(&args).stderr);
        assert!(said.contains("files that are named like masks are records of their own, as images"), "{said}");
        // What is no volume is not read.
        tree(dir.path(), &["masks/p1.png", "ages.csv: p1,40"]);
        let said = text(&run(&["inspect", dir.path().to_str().unwrap(), "--format", "volumes"]).stderr);
        for words in ["1 .csv, the first is `ages.csv`", "1 .png, the first is `masks/p1.png`"] {
            assert!(said.contains(words), "{said}");
        }
    }
}

/// A file of safetensors: arrays of two bytes with these names.
fn safetensors(names: &[&str]) -> Vec<u8> {
    let of = |(i, name): (usize, &&str)| {
        format!("\"{name}\":{{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[{},{}]}}", 2 * i, 2 * i + 2)
    };
    let header = format!("{{{}}}", names.iter().enumerate().map(of).collect::<Vec<_>>().join(","));
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![7; 2 * names.len()]].concat()
}

#[test]
fn arrays_that_are_left_out_and_single_files_are_named() {
    let files = [("0.safetensors", safetensors(&["x"])), ("1.safetensors", safetensors(&["x", "y"]))];
    let cases: [(&[usize], &[&str], &str, bool); 5] = [
        (&[0, 1], &["--format", "arrays"], "arrays that the first file lacks are no fields, and are left out", true),
        (&[0, 1], &["--format", "arrays", "--columns", "x"], "first file lacks", false),
        (&[0], &["--format", "arrays"], "this is the only file of arrays, so its rows are the records", true),
        (&[0], &[], "the only file of arrays", false),
        (&[0], &[], "next to those of the format arrays are not read: 1 .csv, the first is `labels.csv`", true),
    ];
    for (chosen, args, words, is_there) in cases {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("labels.csv"), "0,1").unwrap();
        for (name, bytes) in chosen.iter().map(|i| &files[*i]) {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        let output = run(&[&["inspect", dir.path().to_str().unwrap()], args].concat());
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains(words), is_there, "{chosen:?} {args:?}: {said}");
    }
}

#[test]
fn shards_of_mds_that_no_index_lists_are_named() {
    let shard =
        [&1u32.to_le_bytes()[..], &14u32.to_le_bytes(), &22u32.to_le_bytes(), b"{}", &7i64.to_le_bytes()].concat();
    let index = r#"{"version": 2, "shards": [{"format": "mds", "column_names": ["n"], "column_encodings": ["int"],
        "column_sizes": [8], "raw_data": {"basename": "shard.00000.mds", "bytes": 22, "hashes": {}}, "zip_data": null,
        "samples": 1, "compression": null}]}"#;
    for (name, is_named) in [("shard.00000.mds", false), ("shard.00001.mds", true), ("more/shard.00000.mds", true)] {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("more")).unwrap();
        fs::write(dir.path().join("index.json"), index).unwrap();
        for name in ["shard.00000.mds", name] {
            fs::write(dir.path().join(name), &shard).unwrap();
        }
        let output = run(&["inspect", dir.path().to_str().unwrap()]);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains("1 shards that index.json does not list are not read"), is_named, "{name}: {said}");
    }
}

#[test]
fn what_is_right_in_splits_and_tables_has_no_warning() {
    let cases: [(&[&str], &[&str], &str); 4] = [
        (&["PNGImages/a.png", "PedMasks/a_mask.png", "Annotation/a.txt: # of PASCAL"], &[], "may hold masks"),
        (
            &["train/0.png", "labels.csv: file,label\ntrain/0.png,1\n", "other.csv: x"],
            &["--labels", "LABELS"],
            "next to",
        ),
        (&["train/a/0.png", "train/b/1.png", "test/images/2.png"], &["--split", "train"], "another split"),
        (&["a/0.png", "a/1.png", "b/2.png", "list.txt: 2"], &["--record-list", "LIST"], "numbers in the list"),
    ];
    for (files, args, words) in cases {
        let (code, warnings) = lines(files, args, "warning: ");
        assert!(code == Some(0) && !warnings.iter().any(|line| line.contains(words)), "{files:?}: {warnings:?}");
    }
}
