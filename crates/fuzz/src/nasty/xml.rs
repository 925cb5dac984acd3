//! Topology dumps that no program writes.

use super::{Nasty, nasty, row, with};

/// An hwloc dump around some objects.
fn hwloc(inside: &str) -> String {
    format!("<topology version=\"2.0\"><object type=\"Machine\">{inside}</object></topology>")
}

pub(crate) fn xml() -> Vec<Nasty> {
    let mut all = shapes();
    all.extend(devices());
    all.extend(lengths());
    with(all)
}

fn shapes() -> Vec<Nasty> {
    let laughs = row(9, |n| format!("<!ENTITY a{} \"&a{n};&a{n};\">", n + 1));
    vec![
        nasty(
            "a billion laughs",
            format!("<!DOCTYPE t [<!ENTITY a0 \"lol\">{laughs}]><t>&a9;</t>"),
        ),
        nasty(
            "many attributes",
            format!("<system {}/>", row(200_000, |n| format!("a{n}='' "))),
        ),
        nasty(
            "attributes with brackets",
            format!("<system {}/>", row(200_000, |n| format!("a{n}='>' "))),
        ),
        nasty(
            "many namespaces",
            format!(
                "<system {}>{}</system>",
                row(2000, |n| format!("xmlns:a{n}='{n}' ")),
                row(50_000, |n| format!("<a xmlns:b='{n}'/>"))
            ),
        ),
        nasty(
            "deep",
            format!("{}{}", "<a>".repeat(200_000), "</a>".repeat(200_000)),
        ),
        nasty("open", "<a>".repeat(500_000)),
    ]
}

fn devices() -> Vec<Nasty> {
    let os = |n: usize| {
        format!(
            "<object type=\"OSDev\" name=\"mlx5_{n}\" osdev_type=\"{}\"/>",
            2 + n % 2
        )
    };
    let ports = row(255, |n| {
        format!("<info name=\"Port{}State\" value=\"4\"/>", n + 1)
    });
    let device = |inside: &str, n: usize| {
        let bus = format!("{:04x}:{:02x}:00.0", n >> 8, n & 255);
        format!(
            "<object type=\"PCIDev\" pci_busid=\"{bus}\" pci_type=\"0200 [15b3:1019]\">{inside}</object>"
        )
    };
    let many_ports = |n| {
        device(
            &format!("<object type=\"OSDev\" name=\"mlx5_{n}\" osdev_type=\"3\">{ports}</object>"),
            n,
        )
    };
    vec![
        nasty(
            "many NUMA nodes",
            hwloc(&row(60_000, |n| {
                format!("<object type=\"NUMANode\" os_index=\"{n}\"/>")
            })),
        ),
        nasty(
            "many devices of one function",
            hwloc(&device(&row(40_000, os), 0)),
        ),
        nasty("many ports", hwloc(&row(300, many_ports))),
    ]
}

fn lengths() -> Vec<Nasty> {
    let net = |n| format!("<pci busid=\"x{n:04}\"/>");
    vec![
        nasty(
            "many elements",
            format!("<system>{}</system>", "<a/>".repeat(1_000_001)),
        ),
        nasty(
            "many notes",
            format!(
                "<system><cpu>{}{}</cpu></system>",
                row(998, net),
                "<pci busid=\"xxxxx\"/>".repeat(100_000)
            ),
        ),
        nasty("a long root", format!("<{}/>", "a".repeat(1 << 20))),
        nasty("a long end", format!("<a></{}>", "b".repeat(1 << 20))),
        nasty("a long entity", format!("<a>&{};</a>", "b".repeat(1 << 20))),
        nasty(
            "comments",
            format!("<!--{}--><system/>", "- ".repeat(1 << 19)),
        ),
    ]
}
