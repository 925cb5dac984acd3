//! `cargo xtask fuzz`: libFuzzer on the targets of `fuzz/`, one after the other.
//!
//! The project's stable toolchain is enough: coverage is a pass of LLVM that needs no unstable flag.
//! Sanitizers do (`-Zsanitizer`), and are left out (`-s none`): there is no unsafe code of ours, and
//! memory is bounded by `-rss_limit_mb`. New inputs stay in `.cache/fuzz/corpus`, so that the next
//! run goes on where this one stopped; `fuzz/corpus` is read and never written.

use anyhow::{Context, Result, ensure};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Version of cargo-fuzz that is installed if there is none.
const CARGO_FUZZ: &str = "0.13.2";
/// Limits of one input: as long as no machine under load needs, and what the largest corpus takes
/// several times over.
const LIMITS: [&str; 2] = ["-timeout=30", "-rss_limit_mb=1536"];

/// What to fuzz, and for how long.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A target (a file in fuzz/fuzz_targets); may be repeated. Without it: all, one after the other.
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// Seconds for each target.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// Where things are.
struct Places {
    root: PathBuf,
    tools: PathBuf,
    cache: PathBuf,
}

/// How one target did.
struct Outcome {
    runs: u64,
    new_entries: usize,
    crashes: usize,
    log: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let places = Places::find()?;
    let targets = places.targets(&options.target)?;
    places.install()?;
    let mut crashes = 0;
    println!(
        "{:<18} {:>10} {:>8} {:>6} {:>8}",
        "TARGET", "RUNS", "SECONDS", "NEW", "CRASHES"
    );
    for target in targets {
        let outcome = places.fuzz(&target, options.seconds)?;
        let Outcome {
            runs, new_entries, ..
        } = outcome;
        let seconds = options.seconds;
        println!(
            "{target:<18} {runs:>10} {seconds:>8} {new_entries:>6} {:>8}",
            outcome.crashes
        );
        if outcome.crashes > 0 {
            println!("  see {}", outcome.log.display());
        }
        crashes += outcome.crashes;
    }
    Ok(match crashes {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

impl Places {
    fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let root = root.canonicalize().context("find the repository")?;
        let tools = std::env::var_os("PODRAIL_TOOLS_DIR");
        let tools = tools.map_or_else(|| root.join(".cache/tools"), PathBuf::from);
        let cache = root.join(".cache/fuzz");
        Ok(Self { root, tools, cache })
    }

    fn targets(&self, wanted: &[String]) -> Result<Vec<String>> {
        let names = names(&self.root.join("fuzz/fuzz_targets"))?;
        let mut known: Vec<String> = names
            .iter()
            .filter_map(|name| name.strip_suffix(".rs"))
            .map(str::to_owned)
            .collect();
        known.sort();
        for name in wanted {
            ensure!(
                known.contains(name),
                "no target {name}; there are: {}",
                known.join(", ")
            );
        }
        known.retain(|name| wanted.is_empty() || wanted.contains(name));
        Ok(known)
    }

    fn install(&self) -> Result<()> {
        if self.tools.join("bin/cargo-fuzz").exists() {
            return Ok(());
        }
        println!("building cargo-fuzz {CARGO_FUZZ} once (a few minutes)");
        let status = Command::new("cargo")
            .args([
                "install",
                "--quiet",
                "--locked",
                "--version",
                CARGO_FUZZ,
                "--root",
            ])
            .arg(&self.tools)
            .arg("cargo-fuzz")
            .status()
            .context("run cargo install")?;
        ensure!(status.success(), "cargo-fuzz cannot be installed");
        Ok(())
    }

    /// cargo-fuzz ends with an error after a crash, which the artifacts tell better; an error without
    /// one is another fault.
    fn fuzz(&self, target: &str, seconds: u32) -> Result<Outcome> {
        let [corpus, artifacts] =
            ["corpus", "artifacts"].map(|kind| self.cache.join(kind).join(target));
        for dir in [&corpus, &artifacts] {
            fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        }
        let (entries, crashes) = (names(&corpus)?.len(), names(&artifacts)?.len());
        let log = self.cache.join(format!("{target}.log"));
        let status = self
            .command(target, seconds, (&corpus, &artifacts))
            .stderr(fs::File::create(&log).with_context(|| format!("write {}", log.display()))?)
            .stdout(Stdio::null())
            .status()
            .context("run cargo fuzz")?;
        let text = fs::read(&log).with_context(|| format!("read {}", log.display()))?;
        let crashes = names(&artifacts)?.len().saturating_sub(crashes);
        let see = log.display();
        ensure!(
            status.success() || crashes > 0,
            "cargo fuzz run {target} failed: see {see}"
        );
        Ok(Outcome {
            runs: runs(&String::from_utf8_lossy(&text)),
            new_entries: names(&corpus)?.len().saturating_sub(entries),
            crashes,
            log,
        })
    }

    fn command(&self, target: &str, seconds: u32, (corpus, artifacts): (&Path, &Path)) -> Command {
        let fuzz = self.root.join("fuzz");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = [self.tools.join("bin")]
            .into_iter()
            .chain(std::env::split_paths(&path));
        let mut command = Command::new("cargo");
        command
            .current_dir(&self.root)
            .env("PATH", std::env::join_paths(dirs).unwrap_or(path.clone()))
            .args(["fuzz", "run", "--sanitizer", "none", "--fuzz-dir"])
            .arg(&fuzz)
            .arg("--target-dir")
            .arg(self.cache.join("target"))
            .args([Path::new(target), corpus, &fuzz.join("corpus").join(target)])
            .arg("--")
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg("-print_final_stats=1")
            .args(LIMITS);
        command
    }
}

fn names(dir: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.collect())
}

/// Inputs that libFuzzer has run, by its last words.
fn runs(log: &str) -> u64 {
    let line = |line: &str| {
        line.strip_prefix("stat::number_of_executed_units:")?
            .trim()
            .parse()
            .ok()
    };
    log.lines().find_map(line).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    //! What is read from libFuzzer's log.
    use super::runs;

    #[test]
    fn runs_are_read_from_the_last_words() {
        let log = "Done 7 runs\nstat::number_of_executed_units: 114476\nstat::peak_rss_mb: 62\n";
        assert_eq!(runs(log), 114_476);
        assert_eq!(runs("==1== ERROR: libFuzzer: deadly signal"), 0);
    }
}
