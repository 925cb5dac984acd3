//! Debian packages: QEMU onto the host, everything else into a private tree.
//!
//! The private apt has its own source list, lists and cache, and an empty dpkg status, so that it
//! resolves whole closures of another suite and the host's apt never learns of it. Maintainer
//! scripts never run.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::LabError;

/// The emulator, looked for on PATH.
pub(super) const QEMU: &str = "qemu-system-x86_64";
/// Host programs and the packages that bring them.
const HOST: [(&str, &str); 4] = [
    (QEMU, "qemu-system-x86"),
    ("dpkg-deb", "dpkg"),
    ("setpriv", "util-linux"),
    ("strip", "binutils"),
];
/// The guest's suite, and its kernel's.
const SUITES: [&str; 2] = ["trixie", "trixie-backports"];
/// Suites whose mirror has the guest's suites too.
const HOST_SUITES: [&str; 5] = ["bookworm", "trixie", "oldstable", "stable", "oldoldstable"];
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The first file of that name on PATH.
pub(super) fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// Installs what the host lacks, and only that.
pub(super) fn install_host_packages(say: &mut dyn FnMut(&str)) -> Result<(), LabError> {
    let missing = HOST
        .iter()
        .filter(|(program, _)| on_path(program).is_none());
    let missing: Vec<&str> = missing.map(|(_, package)| *package).collect();
    let apt = on_path("apt-get").is_some();
    if !apt || (!missing.is_empty() && !nix::unistd::geteuid().is_root()) {
        let who = if apt {
            "root to install"
        } else {
            "apt-get, and these packages:"
        };
        let packages = HOST.map(|(_, package)| package).join(" ");
        return Err(LabError::CannotInstall {
            missing: format!("{who} {packages}"),
        });
    }
    if missing.is_empty() {
        return Ok(());
    }
    say(&format!("installing {}", missing.join(" ")));
    let install = |packages: &[&str]| {
        let mut words = vec!["install", "-y", "-q", "--no-install-recommends"];
        words.extend_from_slice(packages);
        run("apt-get", &words)
    };
    if install(&missing).is_ok() {
        return Ok(());
    }
    say("refreshing the host's package lists");
    run("apt-get", &["update", "-q"])?;
    install(&missing).map(drop)
}

/// An apt of its own below one folder.
pub(super) struct PrivateApt {
    dir: PathBuf,
    options: Vec<String>,
}

impl PrivateApt {
    /// Lays out the folder, with the host's own mirror as the source.
    pub(super) fn create(dir: &Path) -> Result<Self, LabError> {
        for sub in ["lists/partial", "cache/archives/partial"] {
            let path = dir.join(sub);
            fs::create_dir_all(&path).map_err(LabError::io("create", &path))?;
        }
        let mirror = mirror()?;
        let signed = if Path::new(KEYRING).exists() {
            format!(" signed-by={KEYRING}")
        } else {
            String::new()
        };
        let line = |suite: &str| format!("deb [arch=amd64{signed}] {mirror} {suite} main\n");
        super::write(
            &dir.join("sources.list"),
            SUITES.map(line).concat().as_bytes(),
        )?;
        super::write(&dir.join("status"), b"")?;
        let own = |name: &str, file: &str| format!("-o{name}={}", dir.join(file).display());
        let options = vec![
            own("Dir::Etc::SourceList", "sources.list"),
            own("Dir::State::Lists", "lists"),
            own("Dir::State::status", "status"),
            own("Dir::Cache", "cache"),
            "-oDir::Etc::SourceParts=/dev/null".into(),
            "-oDir::Etc::Preferences=/dev/null".into(),
            "-oDir::Etc::PreferencesParts=/dev/null".into(),
            // The folder belongs to the caller; apt's own user could not write there.
            "-oAPT::Sandbox::User=root".into(),
            "-oAPT::Architecture=amd64".into(),
            "-oAPT::Architectures=amd64".into(),
            "-oAcquire::Languages=none".into(),
        ];
        Ok(Self {
            dir: dir.into(),
            options,
        })
    }

    /// The suites read, for people.
    pub(super) fn suites(&self) -> String {
        SUITES.join(" and ")
    }

    pub(super) fn update(&self) -> Result<(), LabError> {
        self.run("apt-get", &["update", "-q", "--error-on=any"])
            .map(drop)
    }

    /// The names of all packages with a prefix.
    pub(super) fn names(&self, prefix: &str) -> Result<Vec<String>, LabError> {
        let text = self.run("apt-cache", &["pkgnames", prefix])?;
        Ok(text.lines().map(String::from).collect())
    }

    /// Downloads packages and all they depend on; returns the files.
    pub(super) fn download(&self, packages: &[String]) -> Result<Vec<PathBuf>, LabError> {
        let mut words = vec![
            "install",
            "-y",
            "-q",
            "--no-install-recommends",
            "--download-only",
        ];
        words.extend(packages.iter().map(String::as_str));
        self.run("apt-get", &words)?;
        let dir = self.dir.join("cache/archives");
        let mut debs: Vec<PathBuf> = fs::read_dir(&dir)
            .map_err(LabError::io("read", &dir))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension() == Some(OsStr::new("deb")))
            .collect();
        debs.sort();
        Ok(debs)
    }

    fn run(&self, program: &str, words: &[&str]) -> Result<String, LabError> {
        let options = self.options.iter().map(String::as_str);
        run(
            program,
            &options.chain(words.iter().copied()).collect::<Vec<_>>(),
        )
    }
}

/// Unpacks packages over each other into one tree.
pub(super) fn unpack(debs: &[PathBuf], tree: &Path) -> Result<(), LabError> {
    for dir in ["usr/bin", "usr/sbin", "usr/lib", "usr/lib64"] {
        let path = tree.join(dir);
        fs::create_dir_all(&path).map_err(LabError::io("create", &path))?;
    }
    let tree = tree.display().to_string();
    for deb in debs {
        run("dpkg-deb", &["-x", &deb.display().to_string(), &tree])?;
    }
    Ok(())
}

/// The mirror of the host's main component. What apt is configured with, not what it has fetched,
/// so it is known before any `apt-get update`.
fn mirror() -> Result<String, LabError> {
    let filters = ["Created-By: Packages", "Component: main"];
    let mut words = vec!["indextargets", "--format", "$(RELEASE) $(REPO_URI)"];
    words.extend(filters);
    let targets = run("apt-get", &words)?;
    targets
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(suite, _)| HOST_SUITES.contains(suite))
        .map(|(_, uri)| uri.to_owned())
        .ok_or(LabError::NoMirror)
}

fn run(program: &str, words: &[&str]) -> Result<String, LabError> {
    let output = Command::new(program)
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(LabError::io("run", program))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let plain = words.iter().filter(|word| !word.starts_with("-o"));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(LabError::Tool {
        program: program.into(),
        arguments: plain.copied().collect::<Vec<_>>().join(" "),
        status: output.status.to_string(),
        stderr: crate::machine::last_lines(&stderr, 8),
    })
}
