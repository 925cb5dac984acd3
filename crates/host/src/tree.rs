//! Bounded reads below a root. What is absent is `None`; what is odd becomes a note as well.

use crate::HostError;
use std::cell::RefCell;
use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Largest file that is read from sysfs or /proc, in bytes; sysfs gives a page, 4 KiB.
const FILE_LIMIT: u64 = 64 * 1024;
/// Most names that are taken from one directory.
const NAME_LIMIT: usize = 65_536;
/// Most notes that are kept.
const NOTE_LIMIT: usize = 1000;

/// Answers of a driver that mean "I do not say": ENODEV, EINVAL, ENODATA, EOPNOTSUPP. Reading
/// `speed` or `carrier` of an interface that is down gives EINVAL (`net/core/net-sysfs.c`).
const NOT_SAID: [i32; 4] = [19, 22, 61, 95];

/// Something that was skipped, missing or garbled.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// The device or file that it is about.
    pub subject: String,
    /// What happened to it, in words.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.text)
    }
}

/// Notes in the order they came up, without repeats and with an end.
#[derive(Debug, Default)]
pub(crate) struct Notes(RefCell<Vec<Note>>);

impl Notes {
    /// Adds a note, unless it is there already or there are too many.
    pub(crate) fn add(&self, subject: impl fmt::Display, text: impl Into<String>) {
        let mut notes = self.0.borrow_mut();
        let note = match notes.len() {
            0..NOTE_LIMIT => Note {
                subject: clean(&subject.to_string()),
                text: clean(&text.into()),
            },
            NOTE_LIMIT => Note {
                subject: "notes".to_owned(),
                text: format!("more than {NOTE_LIMIT}: the others are left out"),
            },
            _ => return,
        };
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// The notes.
    pub(crate) fn into_vec(self) -> Vec<Note> {
        self.0.into_inner()
    }
}

/// Notes end on terminals and in events: no control characters, 200 characters at most.
fn clean(text: &str) -> String {
    text.chars()
        .take(200)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// The file systems of a node below a root.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    /// `root/sys` without symlinks: real paths must lie below it.
    sys: PathBuf,
    notes: Notes,
}

impl Tree {
    /// Finds sysfs below the root.
    pub(crate) fn open(root: &Path) -> Result<Self, HostError> {
        let path = root.join("sys");
        let sys = fs::canonicalize(&path).map_err(|source| HostError::NoSysfs { path, source })?;
        Ok(Self {
            root: root.to_owned(),
            sys,
            notes: Notes::default(),
        })
    }

    /// Adds a note.
    pub(crate) fn note(&self, subject: impl fmt::Display, text: impl Into<String>) {
        self.notes.add(subject, text);
    }

    /// Ends the reading.
    pub(crate) fn into_notes(self) -> Vec<Note> {
        self.notes.into_vec()
    }

    /// Names in a directory, sorted; none if it is absent.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let entries = match fs::read_dir(self.root.join(path)) {
            Ok(entries) => entries,
            Err(error) => {
                self.note_error(path, &error);
                return Vec::new();
            }
        };
        let mut names: Vec<String> = entries
            .map_while(Result::ok)
            .take(NAME_LIMIT)
            .filter_map(|entry| self.name(path, &entry))
            .collect();
        if names.len() == NAME_LIMIT {
            self.note(
                path,
                format!("only the first {NAME_LIMIT} entries are read"),
            );
        }
        names.sort_unstable();
        names
    }

    fn name(&self, path: &str, entry: &fs::DirEntry) -> Option<String> {
        let name = entry.file_name().into_string();
        name.map_err(|_| self.note(path, "an entry whose name is not UTF-8 is skipped"))
            .ok()
    }

    /// Whether something is there; a dangling symlink is not.
    pub(crate) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Text of a small file without white space around it; `None` if it is absent or the driver
    /// does not say. Anything else that goes wrong is noted.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        match read_text(&self.root.join(path), FILE_LIMIT) {
            Ok(text) => Some(text.trim().to_owned()),
            Err(HostError::Read { source, .. }) => {
                self.note_error(path, &source);
                None
            }
            Err(HostError::TooLarge { limit, .. }) => {
                self.note(path, format!("larger than {limit} bytes, not read"));
                None
            }
            Err(_) => {
                self.note(path, "not UTF-8 text, not read");
                None
            }
        }
    }

    /// A short text to show: 80 characters of the first line, none of them a control character.
    pub(crate) fn word(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let word = text.lines().next()?.chars().take(80);
        let word: String = word.map(|c| if c.is_control() { '?' } else { c }).collect();
        (!word.is_empty()).then_some(word)
    }

    /// Value of a file; a text that `parse` does not take is noted.
    pub(crate) fn value<T>(
        &self,
        path: &str,
        wanted: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.text(path)?;
        let value = parse(&text);
        if value.is_none() {
            let shown: String = text.chars().take(40).collect();
            self.note(path, format!("{shown:?} is not {wanted}"));
        }
        value
    }

    /// Like [`Tree::value`], for a file that the kernel always has: its absence is noted.
    pub(crate) fn needed<T>(
        &self,
        path: &str,
        wanted: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        if !self.exists(path) {
            self.note(path, format!("is missing: {wanted} is not known"));
        }
        self.value(path, wanted, parse)
    }

    /// Parts of the real path of something in sysfs, counted from the mount of sysfs.
    pub(crate) fn real_path(&self, path: &str) -> Option<Vec<String>> {
        let real = match fs::canonicalize(self.root.join(path)) {
            Ok(real) => real,
            Err(error) => {
                self.note_error(path, &error);
                return None;
            }
        };
        let Ok(below) = real.strip_prefix(&self.sys) else {
            self.note(path, "leads out of sysfs, skipped");
            return None;
        };
        below
            .iter()
            .map(|part| part.to_str().map(str::to_owned))
            .collect()
    }

    /// Last part of a symlink's target, which need not exist: `driver`, `master`, `physfn`.
    pub(crate) fn target_name(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.root.join(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// A path below the root, for reads with another limit.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn note_error(&self, path: &str, error: &io::Error) {
        let not_said = error.raw_os_error().is_some_and(|e| NOT_SAID.contains(&e));
        if error.kind() != io::ErrorKind::NotFound && !not_said {
            self.note(path, format!("cannot be read: {error}"));
        }
    }
}

/// Text of a regular file of at most `limit` bytes. Pipes and devices are refused before they are
/// opened, since opening a pipe waits for its writer.
pub(crate) fn read_text(path: &Path, limit: u64) -> Result<String, HostError> {
    let io_error = |source| HostError::Read {
        path: path.to_owned(),
        source,
    };
    if !fs::metadata(path).map_err(io_error)?.is_file() {
        return Err(io_error(io::Error::other("not a regular file")));
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(io_error)?;
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(io_error)?;
    if bytes.len() as u64 > limit {
        return Err(HostError::TooLarge {
            path: path.to_owned(),
            limit,
        });
    }
    String::from_utf8(bytes).map_err(|_| HostError::NotText {
        path: path.to_owned(),
    })
}

/// Reads `0x15b3` or `15b3`.
pub(crate) fn hex(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let all_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    all_hex.then(|| u32::from_str_radix(digits, 16).ok())?
}

/// Reads a 16-bit id, `0x15b3`.
pub(crate) fn hex16(text: &str) -> Option<u16> {
    hex(text).and_then(|id| u16::try_from(id).ok())
}
