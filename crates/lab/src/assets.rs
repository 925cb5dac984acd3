//! The lab's assets: QEMU on the host, a kernel, its modules and a small guest userland.
//!
//! Fetched by name through the host's own apt mirror, into one folder keyed by the recipe, so that
//! a second run finds everything there and an older folder is never mistaken for the present one.

mod apt;
mod containers;
mod image;
mod kernel;
mod modules;
mod pack;
mod userland;

use std::fs;
use std::path::{Path, PathBuf};

use crate::cpio;
use crate::error::LabError;
use crate::plan::{MODULES_PATH, Module};
use crate::shape::digest;

/// Raise when the code of this module makes other files from the same lists.
const RECIPE: u32 = 3;
/// The kernel series wanted first: the first whose rxe sends from a pod's own address. Any other
/// 7.x does when the archive has moved on.
const KERNEL_SERIES: &str = "7.3";

/// Fetched files, ready to boot from.
#[derive(Debug, Clone)]
pub struct Assets {
    dir: PathBuf,
}

impl Assets {
    /// The folder of all recipes: `PODRAIL_LAB_DIR`, or `.lab` in the repository.
    pub fn root() -> PathBuf {
        match std::env::var_os("PODRAIL_LAB_DIR") {
            Some(dir) if !dir.is_empty() => dir.into(),
            _ => repository().join(".lab"),
        }
    }

    /// The assets of the present recipe, when QEMU and they are there.
    ///
    /// # Errors
    /// The setup has not run.
    pub fn find() -> Result<Self, LabError> {
        let assets = Self {
            dir: Self::root().join(format!("assets-{:016x}", recipe())),
        };
        if apt::on_path(apt::QEMU).is_none() || !assets.dir.join("complete").exists() {
            return Err(LabError::AssetsMissing { dir: assets.dir });
        }
        Ok(assets)
    }

    /// Finds the assets, or fetches them; `say` gets one line per step.
    ///
    /// # Guarantees
    /// Twice is once: what is there is used. Half-way leaves nothing that [`find`](Self::find)
    /// takes for whole. The host's apt lists are read, and refreshed only if QEMU is missing.
    ///
    /// # Errors
    /// No root, no apt, no mirror, no network; a package with other contents than expected.
    pub fn ensure(say: &mut dyn FnMut(&str)) -> Result<Self, LabError> {
        if let Ok(assets) = Self::find() {
            say(&format!("assets are in {}", assets.dir.display()));
            return Ok(assets);
        }
        let root = Self::root();
        fs::create_dir_all(&root).map_err(LabError::io("create", &root))?;
        // The kernel lets the lock go with the process, however it ends.
        let lock_path = root.join("lock");
        let lock = fs::File::create(&lock_path).map_err(LabError::io("create", &lock_path))?;
        lock.lock().map_err(LabError::io("lock", &lock_path))?;
        apt::install_host_packages(say)?;
        match Self::find() {
            Ok(assets) => Ok(assets),
            Err(_) => Self::build(&root, say),
        }
    }

    /// The uncompressed kernel.
    pub fn vmlinux(&self) -> PathBuf {
        self.dir.join("vmlinux")
    }

    /// The guest's files, without a lab's own.
    pub fn base_initrd(&self) -> PathBuf {
        self.dir.join("base.cpio")
    }

    /// containerd, runc and the pods' images: what a lab with containers has beyond the base.
    pub(crate) fn containers(&self) -> PathBuf {
        self.dir.join("containers.cpio")
    }

    fn build(root: &Path, say: &mut dyn FnMut(&str)) -> Result<Self, LabError> {
        let work = tempfile::Builder::new()
            .prefix("build-")
            .tempdir_in(root)
            .map_err(LabError::io("create a folder in", root))?;
        let tree = fetch(work.path(), say)?;
        let out = work.path().join("out");
        fs::create_dir(&out).map_err(LabError::io("create", &out))?;
        say("unpacking the kernel to an ELF file");
        let release = kernel::release(&tree)?;
        let vmlinux = kernel::unpack(&tree.join("usr/lib/modules").join(&release).join("vmlinuz"))?;
        write(&out.join("vmlinux"), &vmlinux)?;
        say("packing the guest: modules, programs and their libraries");
        let mut base = userland::pack(&tree)?;
        let table = modules::pack(&tree, &release, &mut base)?;
        let table = serde_json::to_vec(&table).map_err(LabError::Json)?;
        write(&out.join("modules.json"), &table)?;
        base.file(MODULES_PATH, 0o644, table);
        write(&out.join("base.cpio"), &cpio::archive(&base))?;
        say("packing containerd and the pods' images");
        let containers = containers::pack(&tree, &base)?;
        write(&out.join("containers.cpio"), &cpio::archive(&containers))?;
        write(&out.join("complete"), format!("{release}\n").as_bytes())?;
        let assets = Self {
            dir: root.join(format!("assets-{:016x}", recipe())),
        };
        fs::rename(&out, &assets.dir).map_err(LabError::io("rename to", &assets.dir))?;
        say(&format!(
            "ready: kernel {release}, {}",
            assets.dir.display()
        ));
        Ok(assets)
    }

    pub(crate) fn modules(&self) -> Result<Vec<Module>, LabError> {
        let path = self.dir.join("modules.json");
        let bytes = fs::read(&path).map_err(LabError::io("read", &path))?;
        serde_json::from_slice(&bytes).map_err(LabError::Json)
    }
}

/// Changes whenever the same code would fetch or pack something else.
fn recipe() -> u64 {
    let lists = [
        userland::PACKAGES,
        userland::PROGRAMS,
        userland::PLUGINS,
        modules::WANTED,
        containers::PACKAGES,
        containers::PROGRAMS,
        containers::POD_PROGRAMS,
    ];
    let words = lists.iter().map(|list| list.join(" "));
    let files = containers::FILES.map(|(path, text)| format!("{path} {text}"));
    let words: Vec<String> = words.chain(files).collect();
    digest(&format!("{RECIPE} {KERNEL_SERIES} {}", words.join("\n")))
}

/// Downloads and unpacks all packages below `work`; returns the tree.
fn fetch(work: &Path, say: &mut dyn FnMut(&str)) -> Result<PathBuf, LabError> {
    let apt = apt::PrivateApt::create(&work.join("apt"))?;
    say(&format!("reading the package lists of {}", apt.suites()));
    apt.update()?;
    let kernel = kernel::package(&apt.names("linux-image-7")?, KERNEL_SERIES)?;
    let mut packages = kernel.packages();
    let own = userland::PACKAGES.iter().chain(containers::PACKAGES);
    packages.extend(own.map(|name| (*name).to_owned()));
    say(&format!(
        "downloading kernel {} and the guest's packages",
        kernel.release
    ));
    let debs = apt.download(&packages)?;
    say(&format!("unpacking {} packages", debs.len()));
    let tree = work.join("tree");
    apt::unpack(&debs, &tree)?;
    Ok(tree)
}

/// The workspace this crate was built from.
pub(crate) fn repository() -> &'static Path {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir.ancestors().nth(2).unwrap_or(crate_dir)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), LabError> {
    fs::write(path, bytes).map_err(LabError::io("write", path))
}
