//! The layouts of public datasets: trees of volumes that are read without a pattern.
//!
//! ```text
//! imagesTr/c.nii, labelsTr/c.nii              one folder per kind: Medical Segmentation Decathlon, images/ and masks/, ct/ and seg/
//! imagesTr/c_0000.nii, …_0001, labelsTr/c.nii the same with channels: nnU-Net
//! sub-01/ses-02/anat/sub-01_ses-02_T1w.nii    BIDS
//! c/c_flair.nii, c/c_seg.nii                  names that begin with that of their folder: BraTS
//! c/ct.nii, c/mask.nii                        one folder per patient, one file per field
//! c_ct.nii, c_mask.nii                        the same without folders
//! IXI002.nii, IXI012.nii                      volumes without partners: each file is a record
//! ```
//!
//! Nothing is guessed: if the names fit none of these for all patients, the error suggests a pattern that fits this
//! tree.

use std::collections::{BTreeMap, BTreeSet};

use infeed_core::error::{Error, ErrorKind, Result, setting::FIELD};
use infeed_data::{
    arrays::listed,
    names::{SPLITS, base, parent},
};

use super::{
    kinds::kinds,
    names::{FieldFiles, Grouped, Layout, ONLY, add, group, stem},
    words::{
        Volume, common_folders, is_mask, kind_and_rest, names_mask, says_kind, several_splits, split_of, unclear,
        volumes,
    },
};

/// The volumes of `split`, and all names that are not volumes; without a split, all names.
pub(super) fn of_split<'a>(names: &[&'a str], split: Option<&str>) -> Result<Vec<&'a str>> {
    let Some(split) = split else { return Ok(names.to_vec()) };
    let takes = |volume: Volume<'_>| split_of(volume).is_some_and(|of| of.eq_ignore_ascii_case(split));
    let all = volumes(names);
    if !all.iter().any(|volume| takes(*volume)) {
        return Err(Error::new(ErrorKind::NotFound, format!("no volumes of the split `{split}`"))
            .with_hint("put them in a folder of this name; imagesTr and labelsTr are train, imagesTs is test"));
    }
    let left: BTreeSet<usize> = all.iter().filter(|volume| !takes(**volume)).map(|volume| volume.index).collect();
    Ok(names.iter().enumerate().filter(|(index, _)| !left.contains(index)).map(|(_, name)| *name).collect())
}

/// Finds patients and fields from the names alone. `of_one_split`: whether the user chose a split.
pub(super) fn recognise(names: &[&str], of_one_split: bool) -> Result<Layout> {
    let all = volumes(names);
    if !all.iter().any(|volume| volume.stem.contains('/')) {
        return flat(names, &all);
    }
    if let Some(layout) = kinds(names, &all, of_one_split)? {
        return Ok(layout);
    }
    let splits: BTreeSet<&str> = all.iter().filter_map(|volume| split_of(*volume)).collect();
    if splits.len() > 1 && !of_one_split {
        return Err(several_splits(&splits));
    }
    if let Some(layout) = bids(names, &all)? {
        return Ok(layout);
    }
    if let Some(layout) = prefixed(names, &all)? {
        return if hold_cases(&layout.patients) { Err(unclear(names, &all)) } else { Ok(layout) };
    }
    let patients = group(names, "{patient}/{field}")?;
    if no_common_field(&patients) || is_turned(&patients) || are_of_several(&patients) || hold_cases(&patients) {
        return Err(unclear(names, &all));
    }
    tell_left(names, &all, &patients, "they are in no patient's folder");
    Ok(Layout { patients, fields: None })
}

/// Whether there are several patients and no field that all of them have.
fn no_common_field(patients: &Grouped) -> bool {
    let mut all = patients.values();
    let Some(first) = all.next() else { return false };
    let common = |field: &&String| patients.values().all(|files| files.contains_key(*field));
    patients.len() > 1 && !first.keys().any(|field| common(&field))
}

/// Whether the folders rather hold the files of many cases: fields that differ only in a number of three digits or more.
fn hold_cases(patients: &Grouped) -> bool {
    let Some(fields) = patients.values().next() else { return false };
    let plain = |name: &String| {
        let digits = name.split(|c: char| !c.is_ascii_digit()).any(|run| run.len() > 2);
        digits.then(|| name.replace(|c: char| c.is_ascii_digit(), ""))
    };
    let mut seen = BTreeSet::new();
    fields.keys().filter_map(plain).any(|name| !seen.insert(name))
}

/// Whether the names suggest that folders are kinds and files are patients: all folders hold the same names, which differ
/// only in a number, and the folders' own names do not.
fn is_turned(patients: &Grouped) -> bool {
    let Some(first) = patients.values().next() else { return false };
    let numbered = |names: &mut dyn Iterator<Item = &String>| {
        let plain: BTreeSet<String> = names.map(|name| name.replace(|c: char| c.is_ascii_digit(), "")).collect();
        plain.len() == 1
    };
    let has_number = |name: &String| name.contains(|c: char| c.is_ascii_digit()) && !says_kind(name);
    let is_known = |folder: &String| says_kind(folder) || SPLITS.iter().any(|split| split.eq_ignore_ascii_case(folder));
    patients.len() > 1
        && (first.len() > 1 || patients.keys().any(is_known))
        && first.keys().all(has_number)
        && numbered(&mut first.keys())
        && !numbered(&mut patients.keys())
        && patients.values().all(|files| files.keys().eq(first.keys()))
}

/// Whether all volumes are in one folder, and their names differ in a number: those of several patients.
fn are_of_several(patients: &Grouped) -> bool {
    let Some(only) = patients.values().next().filter(|_| patients.len() == 1) else { return false };
    let mut alike: BTreeMap<String, usize> = BTreeMap::new();
    for name in only.keys() {
        *alike.entry(name.replace(|c: char| c.is_ascii_digit(), "")).or_default() += 1;
    }
    let most = alike.values().copied().max().unwrap_or(0);
    most > 2 || most == 2 && alike.len() > 1 && alike.values().all(|count| *count == 2)
}

/// Warns of the volumes that belong to no patient.
fn tell_left(names: &[&str], all: &[Volume<'_>], patients: &Grouped, why: &str) {
    let taken: BTreeSet<usize> = patients.values().flat_map(|files| files.values().copied()).collect();
    let stems: BTreeSet<&str> = taken.iter().filter_map(|index| stem(names[*index])).collect();
    // A header and the file with its voxels have one stem: they are one volume.
    let left: Vec<&str> =
        all.iter().filter(|volume| !stems.contains(volume.stem)).map(|volume| names[volume.index]).collect();
    if !left.is_empty() {
        tracing::warn!(volumes = listed(&left), count = left.len(), "volumes are left out: {why}");
    }
}

/// BIDS: `sub-01/ses-02/anat/sub-01_ses-02_T1w.nii`. Files below `derivatives` belong to the same patient.
fn bids(names: &[&str], all: &[Volume<'_>]) -> Result<Option<Layout>> {
    let common = common_folders(all);
    let place = |volume: &Volume<'_>| -> Option<(String, String)> {
        let folders: Vec<&str> = volume.folders().collect();
        let at = folders.iter().position(|folder| folder.starts_with("sub-"))?;
        let rest = volume.base().strip_prefix(folders[at])?;
        let session = folders.get(at + 1).copied().filter(|folder| folder.starts_with("ses-"));
        let of_session = session.and_then(|session| rest.strip_prefix('_')?.strip_prefix(session));
        let rest = of_session.unwrap_or(rest);
        let field = if rest.is_empty() { ONLY } else { rest.strip_prefix('_').filter(|field| !field.is_empty())? };
        let above = folders.get(common.min(at)..at).unwrap_or_default().iter().copied();
        let above = above.take_while(|folder| !["derivatives", "sourcedata", "rawdata"].contains(folder));
        let patient: Vec<&str> = above.chain([folders[at]]).chain(session).collect();
        Some((patient.join("/"), field.to_owned()))
    };
    let found: Vec<_> = all.iter().map(|volume| (volume, place(volume))).collect();
    if found.iter().filter(|(_, place)| place.is_some()).count() * 2 <= all.len() {
        return Ok(None);
    }
    let mut patients = Grouped::new();
    for (volume, (patient, field)) in found.iter().filter_map(|(volume, place)| Some((volume, place.as_ref()?))) {
        add(&mut patients, names, volume.index, patient, field)?;
    }
    if no_common_field(&patients) {
        return Err(unclear(names, all));
    }
    tell_left(names, all, &patients, "their names do not begin with the name of the subject's folder");
    Ok(Some(Layout { fields: Some(own_fields(&patients)), patients }))
}

/// One field per file of a patient, masks last.
fn own_fields(patients: &Grouped) -> Vec<FieldFiles> {
    let fields: BTreeSet<(bool, &String)> =
        patients.values().flat_map(|files| files.keys().map(|field| (names_mask(field), field))).collect();
    let own = |(mask, field): (bool, &String)| FieldFiles { name: field.clone(), files: vec![field.clone()], mask };
    fields.into_iter().map(own).collect()
}

/// The part of the name after that of its folder.
fn behind_folder<'a>(volume: &Volume<'a>) -> Option<&'a str> {
    let rest = volume.base().strip_prefix(base(parent(volume.stem)))?;
    let field = rest.strip_prefix(['_', '-', '.', ' ']).filter(|field| !field.is_empty());
    field.or_else(|| rest.is_empty().then_some(ONLY))
}

/// Files whose names begin with that of their folder, or with words that all files of the folder share.
fn prefixed(names: &[&str], all: &[Volume<'_>]) -> Result<Option<Layout>> {
    let mut folders: BTreeMap<&str, Vec<Volume<'_>>> = BTreeMap::new();
    all.iter().for_each(|volume| folders.entry(parent(volume.stem)).or_default().push(*volume));
    let named = |by: &dyn Fn(&Volume<'_>) -> String| -> Result<Grouped> {
        let mut patients = Grouped::new();
        for volume in all {
            add(&mut patients, names, volume.index, parent(volume.stem), &by(volume))?;
        }
        Ok(patients)
    };
    let unlike = || -> Result<bool> { Ok(no_common_field(&named(&|volume| volume.base().to_owned())?)) };
    let begins = |(folder, files): (&&str, &Vec<Volume<'_>>)| {
        !folder.is_empty() && files.iter().any(|volume| behind_folder(volume).is_some())
    };
    let says = all.iter().any(|volume| behind_folder(volume).is_some_and(|field| field != ONLY));
    if folders.iter().all(begins) && (says || unlike()?) {
        let patients = named(&|volume| behind_folder(volume).unwrap_or(volume.base()).to_owned())?;
        if no_common_field(&patients) {
            return Err(unclear(names, all));
        }
        return Ok(Some(Layout { fields: Some(own_fields(&patients)), patients }));
    }
    if folders.contains_key("") || !unlike()? {
        return Ok(None);
    }
    let shared: BTreeMap<&str, usize> = folders.iter().map(|(folder, files)| (*folder, shared_words(files))).collect();
    let patients = named(&|volume| volume.base()[shared[parent(volume.stem)]..].to_owned())?;
    let Some(first) = patients.values().next() else { return Ok(None) };
    let numbers = first.keys().all(|field| field.bytes().all(|byte| byte.is_ascii_digit()));
    let equal = patients.values().all(|files| files.keys().eq(first.keys()));
    Ok((first.len() > 1 && equal && !numbers).then(|| Layout { fields: Some(own_fields(&patients)), patients }))
}

/// Length in bytes of the whole words that all these names begin with.
fn shared_words(files: &[Volume<'_>]) -> usize {
    let Some(first) = files.first().map(|volume| volume.base()) else { return 0 };
    let same = |other: &str| first.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let len = files.iter().map(|volume| same(volume.base())).min().unwrap_or(0);
    // Each separator is one byte, so this is a character boundary.
    first.as_bytes()[..len].iter().rposition(|byte| b"_-. ".contains(byte)).map_or(0, |at| at + 1)
}

/// Volumes without folders.
fn flat(names: &[&str], all: &[Volume<'_>]) -> Result<Layout> {
    let each = || -> Result<Layout> {
        let mut patients = Grouped::new();
        for volume in all {
            add(&mut patients, names, volume.index, volume.stem, ONLY)?;
        }
        Ok(Layout { patients, fields: None })
    };
    // `volume-0`, `segmentation-0`: the kind is first.
    let parts: Option<Vec<(&str, &str)>> = all
        .iter()
        .map(|volume| kind_and_rest(volume.stem).filter(|(kind, _)| volume.stem.starts_with(*kind)))
        .collect();
    if let Some(parts) = parts.filter(|parts| parts.iter().any(|(kind, _)| *kind != parts[0].0)) {
        let mut patients = Grouped::new();
        for (volume, (kind, rest)) in all.iter().zip(parts) {
            add(&mut patients, names, volume.index, rest, kind)?;
        }
        return Ok(Layout { fields: Some(own_fields(&patients)), patients });
    }
    let patients = group(names, "{patient}_{field}")?;
    let fields: BTreeSet<&String> = patients.values().flat_map(BTreeMap::keys).collect();
    let numbers = fields.iter().all(|field| field.bytes().all(|byte| byte.is_ascii_digit()));
    let matched: usize = patients.values().map(BTreeMap::len).sum();
    if matched == 0 {
        return if looks_grouped(all) { Err(unclear(names, all)) } else { each() };
    }
    // `scan_001`, `scan_002`: the numbers are those of scans, unless a `0000` suggests channels.
    let one_each =
        numbers && matched >= all.len() && (no_common_field(&patients) || patients.len() == 1 && fields.len() > 1);
    if one_each && !fields.iter().any(|field| *field == "0000") {
        return each();
    }
    if one_each || no_common_field(&patients) || matched * 2 < all.len() {
        return Err(unclear(names, all));
    }
    tell_left(names, all, &patients, "their names are not {patient}_{field} like the others");
    Ok(Layout { patients, fields: None })
}

/// Whether names without `_` suggest several volumes per patient: two kinds, or the same last words after different
/// first ones.
fn looks_grouped(all: &[Volume<'_>]) -> bool {
    let kinds: BTreeSet<&str> = all
        .iter()
        .filter_map(|volume| match says_kind(volume.stem) {
            true => Some(volume.stem),
            false => kind_and_rest(volume.stem).map(|(kind, _)| kind),
        })
        .collect();
    let grouped = |separator: char| {
        let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (first, last) in all.iter().filter_map(|volume| volume.stem.rsplit_once(separator)) {
            groups.entry(first).or_default().insert(last);
        }
        let mut groups = groups.values().filter(|words| words.len() > 1);
        groups.next().is_some_and(|first| groups.any(|other| other == first))
    };
    kinds.len() > 1
        || all.len() > 1 && all.iter().any(|volume| is_mask(volume.stem))
        || ['-', '.', ' '].into_iter().any(grouped)
}

/// Checks that every patient has every field. The error names the missing file.
pub(super) fn complete(names: &[&str], patients: &Grouped, fields: &[FieldFiles]) -> Result<()> {
    let missing = fields.iter().flat_map(|field| &field.files).filter_map(|key| {
        let (patient, files) = patients.iter().find(|(_, files)| !files.contains_key(key))?;
        let lacking = patients.values().filter(|files| !files.contains_key(key)).count();
        let (other, name) = patients.iter().find_map(|(other, files)| Some((other, names[*files.get(key)?])))?;
        let file = called_as(name, base(other), base(patient));
        Some((lacking, file.is_none(), key, file, patient, files, other, name))
    });
    // Report the field that the fewest patients lack: it is the one that is missing. A field that most patients lack is
    // probably a file with a wrong name.
    let first = missing.min_by_key(|(lacking, unnamed, ..)| (*lacking, *unnamed));
    let Some((_, _, key, file, patient, files, other, name)) = first else { return Ok(()) };
    let what = file.map_or_else(|| format!("`{key}`"), |file| format!("file `{file}`"));
    let have = listed(files.keys());
    let what = format!("no {what}: patient `{patient}` has only {have} (patient `{other}` has `{name}`)");
    Err(Error::new(ErrorKind::NotFound, what)
        .with_hint(format!("add the file, or name the fields that every patient has with {FIELD}")))
}

/// `name`, a file of patient `other`, as it would be for `patient`; `None` if it does not contain `other`.
fn called_as(name: &str, other: &str, patient: &str) -> Option<String> {
    let begins = |folder: &str| {
        folder.strip_prefix(other).filter(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric())).is_some()
    };
    let at = base(name).rfind(other)?;
    let file = format!("{}{patient}{}", &base(name)[..at], &base(name)[at + other.len()..]);
    let folders = parent(name).split('/').filter(|folder| !folder.is_empty());
    let folders = folders.map(|folder| match begins(folder) {
        true => format!("{patient}{}", &folder[other.len()..]),
        false => folder.to_owned(),
    });
    Some(folders.chain([file]).collect::<Vec<_>>().join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `patient: field=file+file …` of each patient.
    fn read(names: &[&str]) -> Result<Vec<String>> {
        let Layout { patients, fields } = recognise(names, false)?;
        let fields = fields.unwrap_or_else(|| own_fields(&patients));
        complete(names, &patients, &fields)?;
        let field = |files: &BTreeMap<String, usize>, field: &FieldFiles| {
            let files: Vec<&str> = field.files.iter().map(|file| names[files[file]]).collect();
            format!("{}{}={}", field.name, if field.mask { "!" } else { "" }, files.join("+"))
        };
        let line = |(patient, files): (&String, &BTreeMap<String, usize>)| {
            let fields: Vec<String> = fields.iter().map(|one| field(files, one)).collect();
            format!("{patient}: {}", fields.join(" "))
        };
        Ok(patients.iter().map(line).collect())
    }

    fn reads(names: &[&str], lines: &[&str]) {
        assert_eq!(read(names).unwrap_or_else(|e| panic!("{names:?}: {e}")), lines, "{names:?}");
    }

    fn refused(names: &[&str], says: &[&str]) {
        let text = read(names).expect_err(&format!("{names:?}")).to_string();
        assert!(says.iter().all(|words| text.contains(words)), "{text}");
    }

    #[test]
    fn folders_of_kinds_hold_the_fields_of_patients() {
        let decathlon =
            ["imagesTr/a_001.nii.gz", "imagesTr/a_003.nii.gz", "labelsTr/a_001.nii.gz", "labelsTr/a_003.nii.gz"];
        let lines = [
            "a_001: image=imagesTr/a_001.nii.gz label!=labelsTr/a_001.nii.gz",
            "a_003: image=imagesTr/a_003.nii.gz label!=labelsTr/a_003.nii.gz",
        ];
        reads(&decathlon, &lines);
        // The test part has no labels.
        let mut with_test = decathlon.to_vec();
        with_test.push("imagesTs/a_002.nii.gz");
        reads(&with_test, &lines);
        reads(&of_split(&with_test, Some("test")).unwrap(), &["a_002: image=imagesTs/a_002.nii.gz"]);
        reads(&of_split(&with_test, Some("train")).unwrap(), &lines);
        assert!(of_split(&with_test, Some("val")).unwrap_err().to_string().contains("no volumes of the split `val`"));
        with_test.push("labelsTs/a_002.nii.gz");
        refused(&with_test, &["volumes of several splits: test, train", r#"split("train")"#]);
        reads(&["T/imagesTr/x.nii", "T/labelsTr/x.nii"], &["x: image=T/imagesTr/x.nii label!=T/labelsTr/x.nii"]);
        for (image, mask, fields) in [
            ("images", "masks", ["image", "mask!"]),
            ("imagesTr", "masksTr", ["image", "mask!"]),
            ("img", "seg", ["image", "seg!"]),
            ("ct", "seg", ["ct", "seg!"]),
            ("CT", "gt", ["CT", "gt!"]),
            ("Images", "Segmentations", ["image", "Segmentations!"]),
        ] {
            let names = [format!("{image}/x.nii"), format!("{mask}/x.nrrd")];
            let names = [&*names[0], &*names[1]];
            reads(&names, &[&format!("x: {}={} {}={}", fields[0], names[0], fields[1], names[1])]);
        }
        // The kind is part of the name.
        reads(
            &["imagesTr/img0001.nii", "labelsTr/label0001.nii"],
            &["0001: image=imagesTr/img0001.nii label!=labelsTr/label0001.nii"],
        );
        reads(&["images/c.nii", "masks/c_mask.nii"], &["c: image=images/c.nii mask!=masks/c_mask.nii"]);
        reads(
            &["p/ct/v.nii", "p/seg/v.nii", "q/ct/v.nii", "q/seg/v.nii"],
            &["p/v: ct=p/ct/v.nii seg!=p/seg/v.nii", "q/v: ct=q/ct/v.nii seg!=q/seg/v.nii"],
        );
        reads(&["ct/x.nii", "pet/x.nii"], &["x: ct=ct/x.nii pet=pet/x.nii"]);
        refused(
            &["train/images/x.nii", "train/labels/x.nii", "val/images/y.nii", "val/labels/y.nii"],
            &["splits: train, val"],
        );
        let cases = ["ct_a/ct_a_1001_image.nii", "ct_a/ct_a_1001_label.nii", "ct_a/ct_a_1002_image.nii"];
        refused(&cases, &["do not show which volumes belong to one patient"]);
        refused(&["Train/p/ct.nii", "Train/p/seg.nii", "test/q/ct.nii", "test/q/seg.nii"], &["splits: Train, test"]);
        let missing = ["images/a.nii", "images/b.nii", "labels/a.nii"];
        refused(&missing, &["no file `labels/b.nii`: patient `b` has only image", "(patient `a` has `labels/a.nii`)"]);
        refused(&["images/a.nii", "labels/b.nii"], &["do not show which volumes belong to one patient: images/a.nii"]);
        reads(
            &["imagesTs/a_1.nii", "imagesTs/b_1.nii"],
            &["a_1: image=imagesTs/a_1.nii", "b_1: image=imagesTs/b_1.nii"],
        );
    }

    #[test]
    fn numbers_behind_the_names_of_labels_are_channels() {
        let mut names = vec!["imagesTr/c_1_0000.nii", "imagesTr/c_1_0001.nii", "imagesTr/c_2_0000.nii"];
        names.extend(["labelsTr/c_1.nii", "labelsTr/c_2.nii"]);
        refused(&names, &["no file `imagesTr/c_2_0001.nii`: patient `c_2` has only image_0000, label"]);
        names.push("imagesTr/c_2_0001.nii");
        reads(
            &names,
            &[
                "c_1: image=imagesTr/c_1_0000.nii+imagesTr/c_1_0001.nii label!=labelsTr/c_1.nii",
                "c_2: image=imagesTr/c_2_0000.nii+imagesTr/c_2_0001.nii label!=labelsTr/c_2.nii",
            ],
        );
        // The name of a patient may end in a number too.
        reads(
            &["imagesTr/c_0000.nii", "labelsTr/c_0000.nii"],
            &["c_0000: image=imagesTr/c_0000.nii label!=labelsTr/c_0000.nii"],
        );
        reads(
            &["imagesTs/a_0000.nii", "imagesTs/a_0001.nii", "imagesTs/b_0000.nii", "imagesTs/b_0001.nii"],
            &["a: image=imagesTs/a_0000.nii+imagesTs/a_0001.nii", "b: image=imagesTs/b_0000.nii+imagesTs/b_0001.nii"],
        );
    }

    #[test]
    fn subjects_and_folders_that_files_are_called_by_are_patients() {
        reads(
            &["sub-1/anat/sub-1_T1w.nii.gz", "sub-2/anat/sub-2_T1w.nii.gz"],
            &["sub-1: T1w=sub-1/anat/sub-1_T1w.nii.gz", "sub-2: T1w=sub-2/anat/sub-2_T1w.nii.gz"],
        );
        reads(
            &[
                "derivatives/x/sub-1/ses-a/anat/sub-1_ses-a_desc-brain_mask.nii",
                "sub-1/ses-a/anat/sub-1_ses-a_T1w.nii",
                "top/atlas.nii",
            ],
            &["sub-1/ses-a: T1w=sub-1/ses-a/anat/sub-1_ses-a_T1w.nii \
               desc-brain_mask!=derivatives/x/sub-1/ses-a/anat/sub-1_ses-a_desc-brain_mask.nii"],
        );
        reads(
            &["B_1/B_1_flair.nii", "B_1/B_1_seg.nii", "B_2/B_2_flair.nii", "B_2/B_2_seg.nii"],
            &["B_1: flair=B_1/B_1_flair.nii seg!=B_1/B_1_seg.nii", "B_2: flair=B_2/B_2_flair.nii seg!=B_2/B_2_seg.nii"],
        );
        reads(
            &["G-1/G-1-t1c.nii", "G-1/G-1.nii", "G-2/G-2-t1c.nii", "G-2/G-2.nii"],
            &["G-1: image=G-1/G-1.nii t1c=G-1/G-1-t1c.nii", "G-2: image=G-2/G-2.nii t1c=G-2/G-2-t1c.nii"],
        );
        reads(&["d/a/a.nii", "d/b/b.nii"], &["d/a: image=d/a/a.nii", "d/b: image=d/b/b.nii"]);
        // The error names the file that one patient has under another name.
        refused(
            &["B_1/B_1_flair.nii", "B_1/B_1_seg.nii", "B_2/B_2_flair.nii", "B_2/W_Segm.nii"],
            &["no file `B_2/B_2_seg.nii`"],
        );
        // Any word that the files of a folder share.
        reads(
            &["1/x_1_t1.nii", "1/x_1_t2.nii", "2/x_2_t1.nii", "2/x_2_t2.nii"],
            &["1: t1=1/x_1_t1.nii t2=1/x_1_t2.nii", "2: t1=2/x_2_t1.nii t2=2/x_2_t2.nii"],
        );
    }

    #[test]
    fn volumes_without_partners_are_records() {
        for names in [
            ["IXI002.nii", "IXI012.nii"],
            ["scan_001.nii", "scan_002.nii"],
            ["a_01.nii", "b_02.nii"],
            ["x-T1.nii", "y-T1.nii"],
        ] {
            let stems = names.map(|name| stem(name).unwrap());
            reads(
                &names,
                &[&format!("{}: image={}", stems[0], names[0]), &format!("{}: image={}", stems[1], names[1])],
            );
        }
        reads(&["one.nii.gz"], &["one: image=one.nii.gz"]);
        reads(
            &["segmentation-0.nii", "segmentation-1.nii", "volume-0.nii", "volume-1.nii"],
            &[
                "0: volume=volume-0.nii segmentation!=segmentation-0.nii",
                "1: volume=volume-1.nii segmentation!=segmentation-1.nii",
            ],
        );
        refused(&["ct.nii", "mask.nii"], &["do not show"]);
        refused(&["p-ct.nii", "p-mask.nii", "q-ct.nii", "q-mask.nii"], &[r#"pattern("{patient}-{field}.nii")"#]);
        refused(&["p-a.nii", "p-b.nii", "q-a.nii", "q-b.nii"], &[r#"pattern("{patient}-{field}.nii")"#]);
        // These may be channels of one patient, or several patients.
        refused(&["c_0000.nii", "c_0001.nii"], &[r#"pattern("{patient}_{field}.nii")"#]);
    }

    #[test]
    fn names_that_say_no_patients_are_refused_with_a_pattern_that_does() {
        refused(
            &["AD/x.nii", "CN/y.nii"],
            &[r#"pattern("{patient}.nii"), which makes each file"#, "AD/x.nii, CN/y.nii"],
        );
        let turned: Vec<String> =
            ["aa", "bb"].iter().flat_map(|f| (0..9).map(move |i| format!("d/{f}/c_{i:03}.nii"))).collect();
        let turned: Vec<&str> = turned.iter().map(String::as_str).collect();
        refused(&turned, &[r#"pattern("d/{field}/{patient}.nii")"#]);
        for (names, pattern) in [
            (
                &["ct_scans/c1.nii", "ct_scans/c2.nii", "lung_mask/c1.nii", "lung_mask/c2.nii"][..],
                "{field}/{patient}.nii",
            ),
            (&["raw/case7.nii", "gt/case7.nii"], "{field}/{patient}.nii"),
            (&["d/case0_img.nii", "d/case0_seg.nii", "d/case1_img.nii", "d/case1_seg.nii"], "d/{patient}_{field}.nii"),
            (
                &["B 1/volume-0.nii", "B 1/volume-1.nii", "B 1/segmentation-0.nii", "B 1/segmentation-1.nii"],
                "B 1/{field}-{patient}.nii",
            ),
        ] {
            refused(names, &[&format!("pattern(\"{pattern}\")")]);
        }
        // Folders per patient, and `{patient}_{field}`.
        for (names, lines) in [
            (
                &["p2/ct.nrrd", "p2/mask.nrrd", "p1/ct.nrrd", "p1/mask.nrrd", "readme.txt"][..],
                &["p1: ct=p1/ct.nrrd mask!=p1/mask.nrrd", "p2: ct=p2/ct.nrrd mask!=p2/mask.nrrd"][..],
            ),
            (&["p1_ct.nii", "p1_mask.nii.gz"], &["p1: ct=p1_ct.nii mask!=p1_mask.nii.gz"]),
            (&["p1_ct.nii", "p2_ct.nii", "other.nii"], &["p1: ct=p1_ct.nii", "p2: ct=p2_ct.nii"]),
            (&["x/p1/a.nii", "x/p2/a.nii", "top.nii"], &["x/p1: a=x/p1/a.nii", "x/p2: a=x/p2/a.nii"]),
            (
                &["d/p1/images/ct.nii", "d/p1/images/mask.nii"],
                &["d/p1/images: ct=d/p1/images/ct.nii mask!=d/p1/images/mask.nii"],
            ),
            (&["ct/ct.nhdr", "ct/ct.nii"], &["ct: ct=ct/ct.nhdr"]),
        ] {
            reads(names, lines);
        }
    }
}
