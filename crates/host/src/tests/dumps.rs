//! Dumps of NCCL and hwloc, and files that are none.

use super::{expect, files};
use crate::dump::{self, DumpFormat};
use crate::{HostError, Pattern, Selectors, render};
use std::path::Path;

fn text(found: &dump::Dump) -> String {
    render::topology(&found.topology) + &render::notes(&found.notes)
}

fn parse(text: &str) -> Result<dump::Dump, HostError> {
    dump::parse(Path::new("topo.xml"), text, &Selectors::default())
}

#[test]
fn nccl_dumps() {
    for path in files("nccl-topo", "xml") {
        let found = dump::read(&path, &Selectors::default()).unwrap();
        assert_eq!(found.format, DumpFormat::Nccl);
        assert_eq!(found.topology.gpus.len(), 8, "{}", path.display());
        expect(&path, &text(&found));
    }
}

#[test]
fn hwloc_dumps() {
    for path in files("hwloc", "xml") {
        let found = dump::read(&path, &Selectors::default()).unwrap();
        assert_eq!(found.format, DumpFormat::Hwloc);
        expect(&path, &text(&found));
    }
}

#[test]
fn selectors_apply_to_dumps() {
    let select = Selectors {
        pci: vec![Pattern::parse("0000:0c:*").unwrap()],
        drivers: vec!["mlx5_core".to_owned()],
        ..Selectors::default()
    };
    let path = super::fixtures("nccl-topo/BM.GPU.H100.8.xml");
    let found = dump::read(&path, &select).unwrap();
    assert_eq!(found.topology.rails.len(), 2);
    assert_eq!(
        found.topology.excluded[0].reason,
        "not selected by rails.pci"
    );
}

#[test]
fn odd_nccl_dumps() {
    let found = parse(
        r#"<system version="2">
          <cpu numaid="-1" host_hash="0x1"><pci busid="0000:05:00.0" class="0x030200" vendor="0x1002"/>
            <pci busid="0000:06:00.0"><nic><net name="mlx5_0" guid="0x7" keep="1"/><net name="mlx5_1+mlx5_2"/></nic></pci>
            <pci busid="0000:07:00.0"><nic><net name="mlx5_1" guid="0x7" speed="x" coll="1"/><net name="eth0" port="0"/></nic></pci>
            <pci busid="?"><pci busid="0000:08:00.0"><gpu/></pci></pci>
            <pci busid="0000:09:00.0" class="0x03"><gpu dev="0"/></pci>
            <nic><net name="virtual0"/></nic></cpu>
          <cpu numaid="0" host_hash="0x2"><pci busid="0000:0a:00.0"><gpu/></pci></cpu></system>"#,
    )
    .unwrap();
    assert_eq!(
        text(&found),
        "gpu 0 Amd 0000:05/0000:05:00.0 numa - uuid - model -\n\
         gpu 1 Nvidia 0000:09/0000:09:00.0 numa - uuid - model -\n\
         rail 0 - #- mlx5_0/1 - 0000:06/0000:06:00.0 numa - id 0000:0000 nic 0000:06:00 guid - mac - mtu - speed - link Unknown\n\
         rail 1 - #- mlx5_1/1 - 0000:07/0000:07:00.0 numa - id 0000:0000 nic 0000:06:00 guid - mac - mtu - speed - link Unknown\n\
         note NCCL dump: PCIe roots and sockets are not in it: each bus below a CPU counts as one root\n\
         note NCCL dump: functions of a NIC are shown as ports of function 0\n\
         note 0000:06:00.0: net \"mlx5_1+mlx5_2\" is no RDMA device, no rail\n\
         note eth0: has port 0: NCCL's socket transport, no rail\n\
         note <pci>: busid \"?\" is no PCI address, skipped with all below it\n\
         note virtual0: hangs on no PCI function, no rail\n\
         note NCCL dump: has several machines: only the first is read\n"
    );
}

#[test]
fn wrong_files_are_refused_with_a_hint() {
    let bomb = r#"<!DOCTYPE system [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><system>&b;</system>"#;
    assert!(matches!(parse(bomb), Err(HostError::Entities { .. })));
    for disguise in [
        r#"<!DOCTYPE system SYSTEM "a>b" [<!ENTITY a "aaaa">]><system>&a;</system>"#,
        r#"<!-- <!DOCTYPE x> --><!DOCTYPE system [<!ENTITY a "aaaa">]><system>&a;</system>"#,
    ] {
        let refused = parse(disguise);
        assert!(
            matches!(refused, Err(HostError::Entities { .. })),
            "{refused:?}"
        );
    }
    let deep = format!(
        "<system>{}{}</system>",
        "<pci>".repeat(5000),
        "</pci>".repeat(5000)
    );
    assert!(matches!(parse(&deep), Err(HostError::TooDeep { .. })));
    for text in [
        "",
        "{}",
        "<system>",
        "<system>&x;</system>",
        "\0",
        "<a/><b/>",
    ] {
        assert!(matches!(parse(text), Err(HostError::Xml { .. })), "{text}");
    }
    let graph = parse("<graphs version=\"1\"/>").unwrap_err();
    assert!(graph.to_string().contains("<graphs>") && graph.hint().contains("NCCL_TOPO_DUMP_FILE"));
    let empty = parse("<system/>").unwrap();
    assert!(render::notes(&empty.notes).contains("no GPU and no rail"));
}

#[test]
fn file_faults() {
    let dir = tempfile::tempdir().unwrap();
    let read = |name: &str| dump::read(&dir.path().join(name), &Selectors::default()).unwrap_err();
    std::fs::write(dir.path().join("bytes"), [0xff, 0xfe]).unwrap();
    std::fs::File::create(dir.path().join("huge"))
        .unwrap()
        .set_len(17 << 20)
        .unwrap();
    assert!(matches!(read("absent"), HostError::Read { .. }));
    assert!(matches!(read("."), HostError::Read { .. }));
    assert!(matches!(read("bytes"), HostError::NotText { .. }));
    assert!(matches!(read("huge"), HostError::TooLarge { .. }));
}

/// What users read for every kind of failure: this layer and the object, never the cause, and a
/// next step.
#[test]
fn every_error_has_a_text_and_a_hint() {
    let path = || Path::new("/x").to_owned();
    let source = || std::io::Error::other("cause");
    let xml = roxmltree::Document::parse("").unwrap_err();
    let element = "e".to_owned();
    check(
        &HostError::NoSysfs {
            path: path(),
            source: source(),
        },
        "no sysfs at /x",
    );
    check(
        &HostError::Read {
            path: path(),
            source: source(),
        },
        "cannot read /x",
    );
    check(
        &HostError::TooLarge {
            path: path(),
            limit: 7,
        },
        "/x is larger than 7 bytes",
    );
    check(&HostError::NotText { path: path() }, "/x is not UTF-8 text");
    check(
        &HostError::NoLine {
            path: path(),
            line: "L",
        },
        "/x has no valid line \"L\"",
    );
    check(
        &HostError::Xml {
            path: path(),
            source: xml.into(),
        },
        "/x is not well-formed XML",
    );
    check(
        &HostError::Entities { path: path() },
        "/x has a DOCTYPE with definitions, which is refused",
    );
    check(
        &HostError::TooDeep {
            path: path(),
            limit: 7,
        },
        "/x is nested deeper than 7 elements",
    );
    check(
        &HostError::UnknownFormat {
            path: path(),
            element,
        },
        "/x starts with <e>: neither an NCCL topology nor an hwloc one",
    );
}

fn check(error: &HostError, text: &str) {
    assert_eq!(error.to_string(), text);
    assert!(!error.hint().is_empty());
}

/// The parser's work grows with the square of the attributes, and its memory with namespaces times
/// elements.
#[test]
fn attributes_and_namespaces_without_end_are_refused() {
    let many: String = (0..257).map(|n| format!("a{n}='>' ")).collect();
    for text in [format!("<system {many}/>"), "<system xmlns:a='b'/>".into()] {
        assert!(
            matches!(parse(&text), Err(HostError::Attributes { .. })),
            "{text}"
        );
    }
}

/// A dump of a few megabytes can have more ports than there are rail indexes.
#[test]
fn no_two_rails_share_an_index() {
    let ports: String = (1..=255)
        .map(|port| format!("<info name='Port{port}State' value='4'/>"))
        .collect();
    let device = |n: u32| {
        format!(
            "<object type='PCIDev' pci_busid='{:04x}:{:02x}:00.0' pci_type='0200 [15b3:1019]'>\
             <object type='OSDev' name='mlx5_{n}' osdev_type='3'>{ports}</object></object>",
            n >> 8,
            n & 255
        )
    };
    let devices: String = (0..258).map(device).collect();
    let found = parse(&format!("<topology version='2.0'>{devices}</topology>")).unwrap();
    assert_eq!(found.topology.rails.len(), 65_536);
    assert_eq!(found.topology.rails.last().unwrap().index.0, u16::MAX);
}

#[test]
fn names_of_any_length_are_cut_in_the_message() {
    let error = parse(&format!("<a></{}>", "b".repeat(1 << 16))).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.len() < 300, "{cause}");
}
