//! Patients as NRRD files: CT, PET and two masks of one ball-shaped tumour, as in the study of workload D.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use infeed::dataset::{Draws, SampleRng};

use super::{files::Files, plan::Plan};
use crate::failure::Failure;

const NAMES: [&str; 4] = ["ct", "pet", "mask", "mask2"];

#[derive(Debug)]
pub(super) struct Nrrd {
    patients: u64,
    seed: u64,
    side: u32,
    raw: bool,
}

impl Nrrd {
    pub(super) const fn new(plan: Plan) -> Self {
        Self { patients: plan.count, seed: plan.seed, side: plan.side, raw: plan.raw }
    }

    /// Distance of each voxel from the tumour's centre, in the sizes of a volume of 144, and a draw for its noise.
    fn each(&self, patient: u64, file: u32, mut value: impl FnMut(f32, &mut Draws)) {
        let rng = SampleRng::new(self.seed, 0, patient);
        let mut place = rng.op(0);
        let centre = [0, 1, 2].map(|_| place.between(42.0, 102.0) as f32);
        let mut noise = rng.op(1 + file);
        let unit = 144.0 / self.side as f32;
        let squares =
            |axis: usize| -> Vec<f32> { (0..self.side).map(|i| (i as f32 * unit - centre[axis]).powi(2)).collect() };
        let [zs, ys, xs] = [squares(0), squares(1), squares(2)];
        for z in &zs {
            for y in &ys {
                xs.iter().for_each(|x| value((z + y + x).sqrt(), &mut noise));
            }
        }
    }

    fn voxels(&self, patient: u64, file: u32) -> (&'static str, Vec<u8>) {
        let mut out = Vec::new();
        let dtype = match NAMES[file as usize] {
            "ct" => {
                // Four uniform bytes add up to nearly a normal, of deviation 148.
                let bell = |draws: &mut Draws| {
                    let sum: i32 = (draws.bits() as u32).to_le_bytes().iter().map(|b| i32::from(*b)).sum();
                    (sum - 510) as f32 / 148.0
                };
                self.each(patient, file, |r, draws| {
                    let value = -1000.0 + 1000.0 * (-r / 60.0).exp() + 15.0 * bell(draws);
                    out.extend_from_slice(&(value as i16).to_le_bytes());
                });
                "int16"
            }
            "pet" => {
                self.each(patient, file, |r, draws| {
                    let value = 10.0 * (-r / 15.0).exp() + 0.1 * draws.unit();
                    out.extend_from_slice(&value.to_le_bytes());
                });
                "float"
            }
            "mask" => {
                self.each(patient, file, |r, _| out.push(u8::from(r < 20.0)));
                "uint8"
            }
            _ => {
                self.each(patient, file, |r, _| out.push(2 * u8::from(r < 30.0)));
                "uint8"
            }
        };
        (dtype, out)
    }
}

impl Files for Nrrd {
    fn len(&self) -> usize {
        self.patients as usize * NAMES.len()
    }

    fn path(&self, index: usize) -> String {
        format!("patient{:03}/{}.nrrd", index / NAMES.len(), NAMES[index % NAMES.len()])
    }

    fn bytes(&self, index: usize) -> Result<Vec<u8>, Failure> {
        let (dtype, voxels) = self.voxels((index / NAMES.len()) as u64, (index % NAMES.len()) as u32);
        let side = self.side;
        let encoding = if self.raw { "raw" } else { "gzip" };
        let mut file = format!(
            "NRRD0004\n# Made up\ntype: {dtype}\ndimension: 3\nspace: left-posterior-superior\n\
             sizes: {side} {side} {side}\nspace directions: (1,0,0) (0,1,0) (0,0,1.5)\nkinds: domain domain domain\n\
             endian: little\nencoding: {encoding}\nspace origin: (-72,-72,-108)\n\n"
        )
        .into_bytes();
        if self.raw {
            file.extend_from_slice(&voxels);
            return Ok(file);
        }
        let mut gzip = GzEncoder::new(file, Compression::default());
        let packed = gzip.write_all(&voxels).and_then(|()| gzip.finish());
        packed.map_err(|error| Failure::Failed(format!("cannot compress: {error}")))
    }
}
