//! Which processors are near which GPU, on machines whose memory is divided among sockets ("NUMA nodes").
//!
//! A copy from page-locked memory of one socket to a GPU of another crosses the link between them, which other traffic
//! shares; and a thread reads memory of its own socket faster. So the threads of a GPU run on its node. They touch its
//! page-locked memory first, which places that memory on the node too. Nothing is done if the machine reports too
//! little or leaves no choice: one node; a GPU whose node is unknown (virtual machines report -1); no allowed processor
//! on its node; all allowed processors on its node.
#![forbid(unsafe_code)]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{gpu::Gpu, threads};
use crate::types::Device;

/// Processors by the system's numbers, ascending.
pub type Processors = Arc<[usize]>;

/// No machine has more processors. A list with higher numbers is rejected.
const MOST: usize = 1 << 16;

/// Where the threads of a loader should run. The default is anywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Near {
    /// GPUs that are near some of the allowed processors only, with these processors.
    gpus: Vec<(u32, Processors)>,
    /// Processors for the threads that read, if all devices are near the same ones.
    readers: Option<Processors>,
}

impl Near {
    /// For loaders on these devices. Uses what the system reports about this machine and this thread; `look` returns
    /// the GPUs.
    pub fn find(devices: &[Device], look: impl FnOnce() -> Result<Vec<Gpu>, String>) -> Self {
        // If no device is a GPU, GPUs are not even enumerated: that would wake them up.
        if devices.iter().all(|device| *device == Device::Cpu) {
            return Self::default();
        }
        let (Ok(gpus), Some(allowed)) = (look(), threads::allowed()) else { return Self::default() };
        let place = |index: u32| gpus.iter().find(|gpu| gpu.index == index)?.pci_bus_id.clone();
        Self::on(Path::new("/sys"), &allowed, devices, place)
    }

    /// For a machine described under `root`; `place` returns a GPU's PCI address.
    fn on(root: &Path, allowed: &[usize], devices: &[Device], place: impl Fn(u32) -> Option<String>) -> Self {
        let nodes = nodes(root);
        if nodes.len() < 2 {
            return Self::default();
        }
        let mut near = Self::default();
        // A thread that reads works for all devices.
        let mut common: Option<Option<Processors>> = None;
        for device in devices {
            let processors = match device {
                Device::Cpu => None,
                Device::Cuda(index) => {
                    let found = near.engine(*device).cloned();
                    let look = || near_one(root, &nodes, allowed, &place(*index)?);
                    let processors = found.or_else(look);
                    let known = near.gpus.iter().any(|(other, _)| other == index);
                    near.gpus.extend(processors.clone().filter(|_| !known).map(|found| (*index, found)));
                    processors
                }
            };
            common = Some(match common {
                None => processors,
                Some(before) => before.filter(|before| Some(before) == processors.as_ref()),
            });
        }
        near.readers = common.flatten();
        near
    }

    /// Processors for the threads of a GPU that do not read.
    pub fn engine(&self, device: Device) -> Option<&Processors> {
        self.gpus.iter().find(|(index, _)| device == Device::Cuda(*index)).map(|(_, near)| near)
    }

    /// Processors for reading thread `n`. As many threads stay near as there are near processors; the others may run
    /// anywhere, so that the rest of the machine is used. If only some threads are active, they are those with the
    /// lowest numbers.
    pub fn reader(&self, n: usize) -> Option<&Processors> {
        self.readers.as_ref().filter(|near| n < near.len())
    }
}

/// The allowed processors on the node of one GPU, or `None` if there is no choice.
fn near_one(root: &Path, nodes: &[(u32, Vec<usize>)], allowed: &[usize], place: &str) -> Option<Processors> {
    let path = root.join("bus/pci/devices").join(place).join("numa_node");
    // The file contains -1 if the node is unknown.
    let node: u32 = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    let (_, on_node) = nodes.iter().find(|(number, _)| *number == node)?;
    let near: Processors = allowed.iter().copied().filter(|processor| on_node.contains(processor)).collect();
    (!near.is_empty() && near.len() < allowed.len()).then_some(near)
}

/// Nodes that have processors. Nodes with memory only have none.
fn nodes(root: &Path) -> Vec<(u32, Vec<usize>)> {
    let Ok(entries) = fs::read_dir(root.join("devices/system/node")) else { return Vec::new() };
    let node = |path: PathBuf| {
        let number = path.file_name()?.to_str()?.strip_prefix("node")?.parse().ok()?;
        let processors = parse(&fs::read_to_string(path.join("cpulist")).ok()?)?;
        (!processors.is_empty()).then_some((number, processors))
    };
    entries.flatten().filter_map(|entry| node(entry.path())).collect()
}

/// A list as the kernel writes it: `0-3,8,10-11`.
fn parse(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these nodes, and the node of each GPU.
    fn machine(nodes: &[(u32, &str)], gpus: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: String, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        };
        nodes.iter().for_each(|(n, list)| write(format!("devices/system/node/node{n}/cpulist"), list));
        write("devices/system/node/online".into(), "0-1");
        gpus.iter().for_each(|(place, node)| write(format!("bus/pci/devices/{place}/numa_node"), node));
        root
    }

    /// GPU n is at `gpuN`.
    fn on(machine: &tempfile::TempDir, allowed: &[usize], devices: &[Device]) -> Near {
        Near::on(machine.path(), allowed, devices, |index| Some(format!("gpu{index}")))
    }

    const GPU: [Device; 4] = [Device::Cuda(0), Device::Cuda(1), Device::Cuda(2), Device::Cuda(3)];

    fn two_sockets() -> tempfile::TempDir {
        let gpus = [("gpu0", "0"), ("gpu1", "0"), ("gpu2", "1"), ("gpu3", "-1")];
        machine(&[(0, "0-3,8-11"), (1, "4-7,12-15"), (2, "")], &gpus)
    }

    fn all(range: std::ops::Range<usize>) -> Vec<usize> {
        range.collect()
    }

    #[test]
    fn threads_of_a_gpu_stay_on_its_socket_and_readers_fill_it() {
        let near = on(&two_sockets(), &all(0..16), &GPU[..1]);
        let own: Processors = [0, 1, 2, 3, 8, 9, 10, 11].into();
        assert_eq!(near.engine(GPU[0]), Some(&own));
        assert_eq!((near.reader(0), near.reader(7), near.reader(8)), (Some(&own), Some(&own), None));
        // Only processors that this process may use.
        let near = on(&two_sockets(), &[2, 3, 4, 12, 13], &[GPU[2]]);
        assert_eq!((near.engine(GPU[2]), near.engine(GPU[0])), (Some(&[4, 12, 13].into()), None));
        assert_eq!((near.reader(2), near.reader(3)), (Some(&[4, 12, 13].into()), None));
    }

    #[test]
    fn readers_of_several_gpus_stay_if_all_are_on_one_socket() {
        let machine = two_sockets();
        let together = on(&machine, &all(0..16), &[GPU[1], GPU[0], GPU[1]]);
        assert_eq!(together.engine(GPU[0]), together.engine(GPU[1]));
        assert!(together.reader(0).is_some());
        for apart in [[GPU[0], GPU[2]], [GPU[0], Device::Cpu], [GPU[3], GPU[0]], [Device::Cpu, GPU[0]]] {
            let near = on(&machine, &all(0..16), &apart);
            assert_eq!(near.reader(0), None, "{apart:?}");
            assert!(near.engine(GPU[0]).is_some(), "{apart:?}");
        }
        let apart = on(&machine, &all(0..16), &[GPU[0], GPU[2]]);
        assert_ne!(apart.engine(GPU[0]), apart.engine(GPU[2]));
    }

    #[test]
    fn where_there_is_nothing_to_choose_nothing_is_done() {
        let two = two_sockets();
        let one = machine(&[(0, "0-15")], &[("gpu0", "0")]);
        let silent = tempfile::tempdir().unwrap();
        let odd = machine(&[(0, "0-x"), (1, "5-4"), (2, "0-99999999999")], &[("gpu0", "0")]);
        let cases = [
            ("one node", &one, all(0..16), GPU[0]),
            ("a system that tells nothing", &silent, all(0..16), GPU[0]),
            ("lists that can't be", &odd, all(0..16), GPU[0]),
            ("a GPU of no node", &two, all(0..16), GPU[3]),
            ("a GPU that is not there", &two, all(0..16), Device::Cuda(9)),
            ("none of its processors is allowed", &two, vec![4, 5], GPU[0]),
            ("all that is allowed is on its node", &two, vec![1, 2, 8], GPU[0]),
            ("no GPU", &two, all(0..16), Device::Cpu),
        ];
        for (name, machine, allowed, device) in cases {
            assert_eq!(on(machine, &allowed, &[device]), Near::default(), "{name}");
        }
        let placeless = Near::on(two.path(), &all(0..16), &GPU[..1], |_| None);
        assert_eq!(placeless, Near::default());
    }

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse("\n"), Some(vec![]));
        for bad in ["a", "1-", "3-1", "-1", "0-65536", "1,,x"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
