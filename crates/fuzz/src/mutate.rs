//! Changes of inputs: the same ones for the same seed.

use fastrand::Rng;

/// Longest input that changes make, in bytes.
const LONGEST: usize = 64 * 1024;

/// Bytes and texts that mean something to one grammar or another.
const WORDS: [&str; 40] = [
    "\0",
    "\u{feff}",
    "\u{202e}",
    "\\ud800",
    "\\u0000",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    ":",
    ",",
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "18446744073709551616",
    "99999999999999999999999",
    "0x",
    "-0",
    "NaN",
    "&a ",
    "*a",
    "<!ENTITY a 'b'>",
    "&lol;",
    "<![CDATA[",
    "]]>",
    "<!--",
    "-->",
    "/>",
    "../",
    "//",
    "@",
    "%s",
    "\n",
    "\r\n",
    "\t",
    "\u{1b}[2J",
];

/// An input made of `base`, and of `other` where two are mixed.
#[must_use]
pub fn change(rng: &mut Rng, base: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = base.to_vec();
    for _ in 0..rng.usize(1..=4) {
        one(rng, &mut bytes, other);
    }
    bytes.truncate(LONGEST);
    bytes
}

fn one(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let (start, end) = span(rng, bytes.len());
    match rng.u8(0..7) {
        0 => flip(rng, bytes),
        1 => bytes.truncate(start),
        2 => drop(bytes.drain(start..end)),
        3 => {
            let word = WORDS[rng.usize(0..WORDS.len())];
            bytes.splice(start..start, word.bytes());
        }
        4 => {
            let (from, to) = span(rng, other.len());
            bytes.splice(start..end, other[from..to].iter().copied());
        }
        5 => {
            let times = 1 << rng.u32(0..10);
            let piece = bytes[start..end.min(start + 64)].repeat(times);
            bytes.splice(start..start, piece);
        }
        _ => number(rng, bytes),
    }
}

/// A piece, short ones more often than long ones.
fn span(rng: &mut Rng, length: usize) -> (usize, usize) {
    let start = rng.usize(0..=length);
    let most = (length - start).min(1 << rng.u32(0..12));
    (start, start + rng.usize(0..=most))
}

fn flip(rng: &mut Rng, bytes: &mut [u8]) {
    if bytes.is_empty() {
        return;
    }
    let at = rng.usize(0..bytes.len());
    bytes[at] = match rng.bool() {
        true => rng.u8(..),
        false => bytes[at] ^ (1 << rng.u32(0..8)),
    };
}

/// Puts another number in the place of one.
fn number(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let digits: Vec<usize> = (0..bytes.len())
        .filter(|at| bytes[*at].is_ascii_digit())
        .collect();
    if digits.is_empty() {
        return;
    }
    let at = digits[rng.usize(0..digits.len())];
    let ends = [
        0,
        1,
        64,
        127,
        255,
        256,
        65_535,
        65_536,
        u64::from(u32::MAX),
        u64::MAX,
    ];
    let text = ends[rng.usize(0..ends.len())].to_string();
    bytes.splice(at..=at, text.bytes());
}
