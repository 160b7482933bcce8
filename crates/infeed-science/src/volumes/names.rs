//! Which file is which field of which patient, from a pattern.

use std::collections::BTreeMap;

use infeed_core::error::{Error, ErrorKind, Result, setting::PATTERN};
use infeed_data::names::ends_with;

/// Endings of volume files, longest first, so that a stem has none of them left.
pub(super) const ENDINGS: [&str; 4] = [".nii.gz", ".nii", ".nrrd", ".nhdr"];

/// The name without its ending; `None` if it is not the name of a volume.
pub(super) fn stem(name: &str) -> Option<&str> {
    let stem = |ending: &&str| {
        let (stem, end) = name.split_at_checked(name.len().checked_sub(ending.len())?)?;
        end.eq_ignore_ascii_case(ending).then_some(stem)
    };
    ENDINGS.iter().find_map(stem).filter(|stem| !stem.is_empty() && !stem.ends_with('/'))
}

/// Whether the name is that of an NRRD file, which has a header itself, so it can't be the data file of another header.
pub(super) fn has_header(name: &str) -> bool {
    [".nrrd", ".nhdr"].into_iter().any(|ending| ends_with(name, ending))
}

/// The field of files whose names contain no field.
pub(super) const ONLY: &str = "image";

/// A pattern such as `{patient}/{field}`, `{patient}_{field}.nrrd`, `images/{field}/{patient}.nii.gz`. Without
/// `{field}` each file is a record with the field `image`.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    before: String,
    /// `None` if the pattern has no field.
    between: Option<String>,
    after: String,
    patient_first: bool,
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let refused = || {
            Error::config(format!(
                "the pattern `{text}` does not contain {{patient}} and {{field}} once each, with text between them"
            ))
            .with_hint("write it like {patient}/{field}.nrrd or {patient}_{field}.nii.gz; {patient}.nii.gz has no fields: each file is a record")
        };
        let patient = text.find("{patient}").ok_or_else(refused)?;
        let field = text.find("{field}");
        let patient_first = field.is_none_or(|field| patient < field);
        let words = if patient_first { ["{patient}", "{field}"] } else { ["{field}", "{patient}"] };
        let (before, rest) = text.split_once(words[0]).ok_or_else(refused)?;
        let (between, after) = match field {
            Some(_) => rest.split_once(words[1]).map(|(between, after)| (Some(between), after)).ok_or_else(refused)?,
            None => (None, rest),
        };
        if between.is_some_and(str::is_empty) || [before, between.unwrap_or(""), after].iter().any(|s| s.contains('{'))
        {
            return Err(refused());
        }
        // A pattern without an ending matches all endings.
        let after = stem(&format!("x{after}")).map_or(after, |stem| &after[..stem.len() - 1]);
        Ok(Self { before: before.into(), between: between.map(Into::into), after: after.into(), patient_first })
    }

    /// Patient and field of a name.
    fn split<'a>(&self, name: &'a str) -> Option<(&'a str, &'a str)> {
        self.split_stem(stem(name)?)
    }

    /// As `split`, for a name without its ending.
    pub(super) fn split_stem<'a>(&self, stem: &'a str) -> Option<(&'a str, &'a str)> {
        let middle = stem.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        let Some(between) = &self.between else { return (!middle.is_empty()).then_some((middle, ONLY)) };
        let at = if self.patient_first { middle.rfind(between) } else { middle.find(between) }?;
        let (first, second) = (&middle[..at], &middle[at + between.len()..]);
        let (patient, field) = if self.patient_first { (first, second) } else { (second, first) };
        (!patient.is_empty() && !field.is_empty() && !field.contains('/')).then_some((patient, field))
    }
}

/// Files by patient and field: indices into all names. Patients are in the order of their names.
pub(super) type Grouped = BTreeMap<String, BTreeMap<String, usize>>;

/// Groups files by a pattern. Files that do not match it belong to no patient.
pub(super) fn group(names: &[&str], pattern: &str) -> Result<Grouped> {
    let pattern = Pattern::parse(pattern)?;
    let mut patients = Grouped::new();
    for (index, name) in names.iter().enumerate() {
        if let Some((patient, field)) = pattern.split(name) {
            add(&mut patients, names, index, patient, field)?;
        }
    }
    Ok(patients)
}

/// Adds a file.
pub(super) fn add(patients: &mut Grouped, names: &[&str], index: usize, patient: &str, field: &str) -> Result<()> {
    let files = patients.entry(patient.to_owned()).or_default();
    // A detached header (`.nhdr`) and the NIfTI file that holds its voxels are not two files: the header is used.
    let (detached, nifti) = (|name: &str| ends_with(name, ".nhdr"), |name: &str| !has_header(name));
    match files.get(field).map(|before| names[*before]) {
        Some(before) if detached(before) && nifti(names[index]) => return Ok(()),
        Some(before) if detached(names[index]) && nifti(before) => drop(files.remove(field)),
        _ => {}
    }
    match files.insert(field.to_owned(), index) {
        None => Ok(()),
        Some(_) => Err(Error::new(ErrorKind::Unsupported, format!("patient `{patient}` has two files for `{field}`"))
            .at_object(names[index])
            .with_hint(format!("remove one, or tell them apart with {PATTERN}"))),
    }
}

/// A field of the dataset: the files that are its channels, and whether it is a mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldFiles {
    pub(super) name: String,
    pub(super) files: Vec<String>,
    pub(super) mask: bool,
}

/// Patients and fields found from the names.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) patients: Grouped,
    /// The fields if the user names none. `None`: each file of a patient is a field, and its name decides whether it is
    /// a mask.
    pub(super) fields: Option<Vec<FieldFiles>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pattern: &str, name: &str) -> Option<(String, String)> {
        Pattern::parse(pattern).unwrap().split(name).map(|(p, f)| (p.to_owned(), f.to_owned()))
    }

    #[test]
    fn patterns_find_patient_and_field() {
        let found = |patient: &str, field: &str| Some((patient.to_owned(), field.to_owned()));
        assert_eq!(split("{patient}/{field}", "a/b/ct.nrrd"), found("a/b", "ct"));
        assert_eq!(split("{patient}/{field}.nrrd", "p1/ct.NII.GZ"), found("p1", "ct"));
        assert_eq!(split("{patient}_{field}", "p_1_ct.nii.gz"), found("p_1", "ct"));
        assert_eq!(split("{field}/{patient}.nii.gz", "ct/p1.nii.gz"), found("p1", "ct"));
        assert_eq!(split("train/{patient}-{field}-v2.nrrd", "train/p1-ct-v2.nrrd"), found("p1", "ct"));
        assert_eq!(split("train/{patient}-{field}", "val/p1-ct.nrrd"), None);
        assert_eq!(split("{patient}/{field}", "p1/ct.raw"), None);
        assert_eq!(split("{patient}_{field}", "ct.nrrd"), None);
        assert_eq!(split("{patient}.nii.gz", "a/p_1.nii"), found("a/p_1", "image"));
        assert_eq!(split("{field}Tr/{patient}", "imagesTr/p_1.nii"), found("p_1", "images"));
        for bad in [
            "",
            "{field}",
            "{patient}{patient}",
            "{patient}{field}",
            "{patient}_{field}_{field}",
            "{patient}/{x}_{field}",
        ] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_detached_header_gives_way_to_the_file_that_holds_its_voxels() {
        let both = ["p/ct.nhdr", "p/ct.nii.gz", "q/ct.NII", "q/ct.nhdr"];
        let found = group(&both, "{patient}/{field}").unwrap();
        assert_eq!((found["p"]["ct"], found["q"]["ct"]), (0, 3));
        let error = group(&["p/ct.nii", "p/ct.nrrd"], "{patient}/{field}").unwrap_err().to_string();
        assert!(error.contains("patient `p` has two files for `ct`"), "{error}");
    }
}
