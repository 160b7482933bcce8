//! Trees with one folder per kind of volume: `imagesTr` and `labelsTr`, `images` and `masks`, `ct` and `seg`, with or
//! without channels.

use std::collections::{BTreeMap, BTreeSet};

use infeed_core::error::{Result, setting::SPLIT};
use infeed_data::names::base;

use super::{
    names::{FieldFiles, Grouped, Layout, add},
    words::{
        IMAGES, Volume, VolumeKind, common_folders, field_of, is_mask, kind, says_kind, several_splits, split_of,
        trimmed, unclear,
    },
};

/// For each volume: the kind that one of its folders names, and its patient, made of its other folders and its name.
/// `None` if a volume is in no such folder, or in two.
fn placed<'a>(all: &[Volume<'a>]) -> Option<Vec<(VolumeKind<'a>, String)>> {
    let common = common_folders(all);
    let place = |volume: &Volume<'a>| {
        let folders: Vec<&str> = volume.folders().collect();
        // If all volumes are in one folder, that folder may name their kind.
        let from = common.min(folders.len().saturating_sub(1));
        let mut kinds = folders.iter().enumerate().skip(from).filter_map(|(at, folder)| Some((at, kind(folder)?)));
        let (at, kind) = kinds.next().filter(|_| kinds.next().is_none())?;
        let others = folders[from..at].iter().chain(&folders[at + 1..]).copied();
        // A file named only after its kind (`seg.nii`) names no patient.
        let base = Some(volume.base()).filter(|base| !says_kind(base));
        let patient = others.chain(base).collect::<Vec<_>>().join("/");
        (!patient.is_empty()).then_some((kind, patient))
    };
    all.iter().map(place).collect()
}

/// Patients and fields of a tree with one folder per kind; `None` if the tree is not one.
pub(super) fn kinds(names: &[&str], all: &[Volume<'_>], of_one_split: bool) -> Result<Option<Layout>> {
    let Some(placed) = placed(all) else { return Ok(None) };
    let words: BTreeSet<&str> = placed.iter().map(|(kind, _)| kind.word).collect();
    let one = |word: &str| IMAGES.contains(&&*word.to_ascii_lowercase()) || is_mask(word);
    let is_each = || all.iter().zip(&placed).all(|(volume, (_, patient))| patient == volume.base());
    if words.len() == 1 && !(words.iter().all(|word| one(word)) && is_each()) {
        return Ok(None);
    }
    let mut volumes: Vec<(Volume<'_>, VolumeKind<'_>, String)> =
        all.iter().zip(placed).map(|(volume, (kind, patient))| (*volume, kind, patient)).collect();
    let splits: BTreeSet<&str> = all.iter().filter_map(|volume| split_of(*volume)).collect();
    if splits.len() > 1 && !of_one_split {
        let of_test = |kind: &VolumeKind<'_>| kind.split == Some("test");
        let marked = volumes.iter().all(|(_, kind, _)| kind.split.is_some());
        // The Decathlon's `imagesTs` has no labels: leave it out with a warning. Other mixtures of splits are an error.
        if !marked
            || splits.len() > 2
            || !splits.contains("test")
            || volumes.iter().any(|(_, k, _)| of_test(k) && k.mask)
        {
            return Err(several_splits(&splits));
        }
        let left = volumes.iter().filter(|(_, kind, _)| of_test(kind)).count();
        volumes.retain(|(_, kind, _)| !of_test(kind));
        tracing::warn!(
            volumes = left,
            "the volumes of the test split, which has no labels, are left out; choose them with {}",
            SPLIT.to("test")
        );
    }
    // If two folders are for one field, both fields are named after their folders.
    let mut folders: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (_, kind, _) in &volumes {
        folders.entry(field_of(kind.word)).or_default().insert(kind.word);
    }
    let name = |kind: &VolumeKind<'_>| -> String {
        let field = field_of(kind.word);
        if folders[field].len() > 1 { kind.word.to_owned() } else { field.to_owned() }
    };
    // A field has channels if its names are those of another kind plus a number: nnU-Net's `_0000`.
    let mut channelled = BTreeSet::new();
    let of = |field: &str, way: PatientName| -> BTreeSet<String> {
        volumes
            .iter()
            .filter(|(_, kind, _)| name(kind) == field)
            .filter_map(|(_, _, patient)| way.of(patient))
            .collect()
    };
    let masks: BTreeSet<String> =
        volumes.iter().filter(|(_, kind, _)| kind.mask).map(|(_, kind, _)| name(kind)).collect();
    let fields: BTreeSet<String> = volumes.iter().map(|(_, kind, _)| name(kind)).collect();
    let anchor = masks.first().or_else(|| fields.first()).cloned().unwrap_or_default();
    let partners = |ways: [PatientName; 2], field: &str| of(field, ways[0]).intersection(&of(&anchor, ways[1])).count();
    let mut way = PatientName::Whole;
    for field in fields.iter().filter(|field| **field != anchor) {
        let whole = partners([PatientName::Whole, PatientName::Whole], field);
        if !masks.contains(field) && partners([PatientName::Channel, PatientName::Whole], field) > whole {
            channelled.insert(field.clone());
        } else if whole == 0 && partners([PatientName::Trimmed, PatientName::Trimmed], field) > 0 {
            way = PatientName::Trimmed;
        } else if whole == 0 {
            return Err(unclear(names, all));
        }
    }
    if fields.len() == 1 && masks.is_empty() && is_channelled(&volumes.iter().map(|(_, _, p)| &**p).collect::<Vec<_>>())
    {
        channelled.extend(fields.iter().cloned());
    }
    let mut patients = Grouped::new();
    let mut keys: BTreeMap<(bool, String), BTreeSet<String>> = BTreeMap::new();
    for (volume, kind, patient) in &volumes {
        let field = name(kind);
        let own = if channelled.contains(&field) { PatientName::Channel } else { way };
        let key = match own {
            PatientName::Channel => format!("{field}_{}", &patient[patient.len().saturating_sub(CHANNEL - 1)..]),
            _ => field.clone(),
        };
        let patient = own.of(patient).ok_or_else(|| unclear(names, all))?;
        keys.entry((kind.mask, field)).or_default().insert(key.clone());
        add(&mut patients, names, volume.index, &patient, &key)?;
    }
    let field = |((mask, name), files): ((bool, String), BTreeSet<String>)| FieldFiles {
        name,
        files: files.into_iter().collect(),
        mask,
    };
    Ok(Some(Layout { patients, fields: Some(keys.into_iter().map(field).collect()) }))
}

/// `_0000`
const CHANNEL: usize = 5;

fn without_channel(patient: &str) -> Option<&str> {
    let (case, channel) = patient.split_at_checked(patient.len().checked_sub(CHANNEL)?)?;
    let digits = channel.strip_prefix('_')?.bytes().all(|byte| byte.is_ascii_digit());
    (digits && !case.is_empty()).then_some(case)
}

/// Whether the names of a dataset with one kind end in channel numbers: each case has the same channels, from 0.
fn is_channelled(patients: &[&str]) -> bool {
    let mut cases: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for patient in patients {
        let Some(case) = without_channel(patient) else { return false };
        cases.entry(case).or_default().insert(&patient[case.len()..]);
    }
    let Some(first) = cases.values().next() else { return false };
    first.contains("_0000") && cases.values().all(|channels| channels == first) && (cases.len() > 1 || first.len() == 1)
}

/// How to get the patient from the name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatientName {
    /// The whole name.
    Whole,
    /// The part before the channel number.
    Channel,
    /// The name without its kind: `0001` of `img0001` and `label0001`, `c1` of `c1_seg`.
    Trimmed,
}

impl PatientName {
    fn of(self, patient: &str) -> Option<String> {
        match self {
            Self::Whole => Some(patient.to_owned()),
            Self::Channel => without_channel(patient).map(str::to_owned),
            Self::Trimmed => {
                let (folders, base) = patient.split_at(patient.len() - base(patient).len());
                Some(format!("{folders}{}", trimmed(base)))
            }
        }
    }
}
