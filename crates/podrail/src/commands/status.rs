//! `podrail status`: who holds what.

use crate::cli::{Format, StatusArgs};
use crate::failure::Failure;
use crate::output::{print, print_json};
use crate::view;
use podrail_node::{Settings, Shown};
use podrail_store::Store;

/// Runs the command; makes no file.
pub(super) fn run(args: &StatusArgs) -> Result<(), Failure> {
    let state = Store::open_read_only(&args.state.state)?;
    let resource = Settings::resource_of(state.setup());
    let bindings = state.list().iter();
    let shown: Vec<Shown> = bindings
        .map(|binding| Shown::of(binding, &resource))
        .collect::<Result<_, _>>()?;
    match args.output.output {
        Format::Json => print_json(&shown),
        Format::Text if shown.is_empty() => print("no rails are held\n"),
        Format::Text => {
            let headers = [
                "SANDBOX",
                "POD",
                "STATE",
                "GPUS",
                "RAILS",
                "NEAR",
                "ADDRESSES",
                "NETNS",
            ];
            print(&view::table(
                &headers,
                &shown.iter().map(row).collect::<Vec<_>>(),
            ))
        }
    }
}

fn row(shown: &Shown) -> Vec<String> {
    let rails = &shown.attachment.rails;
    let list = |texts: Vec<String>| {
        if texts.is_empty() {
            "-".to_owned()
        } else {
            texts.join(",")
        }
    };
    let addresses: Vec<String> = rails
        .iter()
        .flat_map(|rail| rail.addresses.iter().map(|net| net.addr().to_string()))
        .collect();
    let pod = shown.pod.as_ref().map(ToString::to_string);
    vec![
        short(shown),
        pod.unwrap_or_else(|| "-".into()),
        shown.state.clone(),
        list(
            shown
                .attachment
                .gpus
                .iter()
                .map(ToString::to_string)
                .collect(),
        ),
        ranges(&rails.iter().map(|rail| rail.index.0).collect::<Vec<_>>()),
        format!("{}/{}", shown.near, rails.len()),
        few(&addresses),
        shown.netns.display().to_string(),
    ]
}

/// A runtime's ids are known by their first 13 characters; `-o json` has the whole. Ids of jobs are
/// somebody's own words, and what `podrail detach` wants.
fn short(shown: &Shown) -> String {
    let id = shown.sandbox.as_str();
    match shown.pod {
        Some(_) => id.chars().take(13).collect(),
        None => id.to_owned(),
    }
}

/// `0-3,12-15` of an ascending list.
fn ranges(numbers: &[u16]) -> String {
    let mut parts: Vec<(u16, u16)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let text = |(first, last): &(u16, u16)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    };
    if parts.is_empty() {
        "-".into()
    } else {
        parts.iter().map(text).collect::<Vec<_>>().join(",")
    }
}

/// The first two of a list, and how many more there are.
fn few(texts: &[String]) -> String {
    match texts {
        [] => "-".into(),
        [a] => a.clone(),
        [a, b] => format!("{a},{b}"),
        [a, b, rest @ ..] => format!("{a},{b},+{}", rest.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rails_are_shown_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3, 12, 13, 15]), "0-3,12-13,15");
        assert_eq!(ranges(&[7]), "7");
        assert_eq!(ranges(&[]), "-");
    }

    #[test]
    fn long_lists_are_cut() {
        let texts: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        assert_eq!(few(&texts), "a,b,+2");
        assert_eq!(few(&texts[..2]), "a,b");
    }
}
