//! Inputs that are large or deep: made here, since they are too large to be committed.

mod xml;
mod yaml;

pub(crate) use xml::xml;
pub(crate) use yaml::yaml;

/// An input with a name.
#[derive(Debug)]
pub struct Nasty {
    /// What it is.
    pub name: &'static str,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

fn nasty(name: &'static str, bytes: impl Into<Vec<u8>>) -> Nasty {
    let bytes = bytes.into();
    Nasty { name, bytes }
}

/// A text for each number below `count`, one after the other.
fn row(count: usize, text: impl Fn(usize) -> String) -> String {
    (0..count).map(text).collect()
}

/// Texts that mean something everywhere.
fn general() -> Vec<Nasty> {
    vec![
        nasty("nothing", ""),
        nasty("zeros", vec![0; 1 << 20]),
        nasty("no UTF-8", vec![0xff; 1 << 16]),
        nasty("a long word", "a".repeat(1 << 20)),
        nasty("a long text", format!("\"{}\"", "a".repeat(1 << 20))),
        nasty(
            "control characters",
            "\"\u{1b}[2J\u{7}\u{202e}\"\n".repeat(1000),
        ),
        nasty("open lists", "[".repeat(1 << 18)),
        nasty("open mappings", "{\"a\":".repeat(1 << 16)),
        nasty(
            "lists",
            format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)),
        ),
        nasty("a long number", "9".repeat(1 << 20)),
        nasty("commas", ",".repeat(1 << 20)),
        nasty("quotes", "\"".repeat(1 << 20)),
        nasty("lines", "\n".repeat(1 << 20)),
    ]
}

fn with(mut more: Vec<Nasty>) -> Vec<Nasty> {
    more.extend(general());
    more
}

pub(crate) fn json() -> Vec<Nasty> {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let long = "a".repeat(1 << 20);
    with(vec![
        nasty(
            "a deep result",
            format!(r#"{{"cniVersion":"1.0.0","prevResult":{deep}}}"#),
        ),
        nasty("a long version", format!(r#"{{"cniVersion":"{long}"}}"#)),
        nasty(
            "a long unknown field",
            format!(r#"{{"cniVersion":"1.0.0","{long}":1}}"#),
        ),
        nasty(
            "a long wrong value",
            format!(r#"{{"cniVersion":"1.0.0","runtimeConfig":"{long}"}}"#),
        ),
        nasty(
            "attachments of the wrong kind",
            format!(r#"{{"cniVersion":"1.0.0","cni.dev/attachments":["{long}"]}}"#),
        ),
        nasty(
            "many fields",
            format!(
                r#"{{"cniVersion":"1.0.0"{}}}"#,
                row(100_000, |n| format!(",\"f{n}\":{n}"))
            ),
        ),
        nasty(
            "one field many times",
            format!(r#"{{"cniVersion":"1.0.0"{}}}"#, ",\"a\":1".repeat(100_000)),
        ),
        nasty(
            "a surrogate alone",
            r#"{"cniVersion":"1.0.0","prevResult":"\ud800","state":"\ud800"}"#,
        ),
        nasty(
            "a huge number",
            format!(
                r#"{{"cniVersion":"1.0.0","prevResult":1e{}}}"#,
                "9".repeat(1000)
            ),
        ),
    ])
}

pub(crate) fn environment() -> Vec<Nasty> {
    let args = row(100_000, |n| format!("K8S_POD_NAME={n};"));
    with(vec![
        nasty(
            "many arguments",
            format!("CNI_COMMAND=ADD\0CNI_ARGS={args}"),
        ),
        nasty(
            "a long command",
            format!("CNI_COMMAND={}", "A".repeat(1 << 20)),
        ),
        nasty(
            "a long id",
            format!("CNI_COMMAND=DEL\0CNI_CONTAINERID={}", "c".repeat(1 << 20)),
        ),
    ])
}

pub(crate) fn annotations() -> Vec<Nasty> {
    let field = "a".repeat(200_000);
    with(vec![
        nasty(
            "a long text in place of a list",
            format!("\"{}\"", "a".repeat(200_000)),
        ),
        nasty(
            "a long name",
            format!(r#"[{{"name":"{field}","ips":["1"]}}]"#),
        ),
        nasty(
            "a long field",
            format!(r#"[{{"name":"storage","{field}":1}}]"#),
        ),
        nasty(
            "many fields",
            format!(
                r#"[{{"name":"storage"{}}}]"#,
                row(20_000, |n| format!(",\"{n}\":1"))
            ),
        ),
        nasty("all rails", row(1024, |n| format!("rdma-ipvlan-{n}@n{n},"))),
        nasty("many elements", "a,".repeat(130_000)),
        nasty(
            "spellings",
            format!(
                "[{{{}}}]",
                row(16, |n| format!(
                    "\"{}name\":null,",
                    if n % 2 == 0 { "N" } else { "n" }
                ))
            ),
        ),
    ])
}

pub(crate) fn rows() -> Vec<Nasty> {
    let long = "x".repeat(1 << 20);
    let deep = "[".repeat(100_000);
    let text = |place: &str, value: &str| {
        nasty(
            "a long or deep text",
            format!("loose\n{place} text {value}\n"),
        )
    };
    vec![
        text("bindings gpus 0", &"0000:0f:00.0 ".repeat(80_000)),
        text("bindings sandbox 0", &long),
        text("bindings state 0", &long),
        text("bindings plan 0", &deep),
        text("bindings plan 1", &format!("\"{long}\"")),
        text("setup value 0", &deep),
        text("setup value 0", &format!("{{\"rails\":{{\"{long}\":1}}}}")),
        text("setup value 0", &format!("\"{long}\"")),
        text("setup value 3", &deep),
        text("setup value 3", &format!("\"{long}\"")),
        text("leases pool 0", &long),
        text("cursors address 0", &long),
        nasty(
            "every byte of a page",
            row(200, |n| format!("byte {} ff\n", 4096 + n * 20)),
        ),
    ]
}

pub(crate) fn trees() -> Vec<Nasty> {
    let name = |n: usize| {
        format!(
            "{:04x}:{:02x}:{:02x}.{}",
            n >> 16,
            (n >> 8) & 255,
            (n >> 3) & 31,
            n & 7
        )
    };
    vec![
        nasty("no sysfs", "dir proc\n"),
        nasty(
            "a long file",
            format!("file sys/bus/pci/devices/x/class {}", "f".repeat(100_000)),
        ),
        nasty(
            "many functions",
            row(1900, |n| {
                format!("file sys/bus/pci/devices/{}/class 0x020000\n", name(n))
            }),
        ),
        nasty(
            "many interfaces",
            row(1900, |n| format!("file sys/class/net/eth{n}/ifindex {n}\n")),
        ),
        nasty(
            "many devices",
            row(1900, |n| format!("dir sys/class/infiniband/mlx5_{n}\n")),
        ),
        nasty(
            "a circle",
            "link sys/class/net/a b\nlink sys/class/net/b a\nlink sys/bus ../sys\n",
        ),
        nasty("deep", format!("file sys/{}x 1\n", "d/".repeat(38))),
    ]
}

pub(crate) fn checkpoints() -> Vec<Nasty> {
    let long = "a".repeat(1 << 20);
    let entry = |ids: &str| {
        format!(r#"{{"PodUID":"u","ContainerName":"c","ResourceName":"r/x","DeviceIDs":{ids}}}"#)
    };
    let file = |entries: &str| format!(r#"{{"Data":{{"PodDeviceEntries":[{entries}]}}}}"#);
    with(vec![
        nasty("a long text", file(&format!("\"{long}\""))),
        nasty("long ids", file(&entry(&format!("\"{long}\"")))),
        nasty(
            "deep ids",
            file(&entry(&format!(
                "{}{}",
                "[".repeat(10_000),
                "]".repeat(10_000)
            ))),
        ),
        nasty(
            "many ids",
            file(&entry(&format!("[{}\"\"]", "\"\",".repeat(300_000)))),
        ),
        nasty("many entries", file(&vec![entry("null"); 20_000].join(","))),
        nasty(
            "many nodes",
            file(&entry(&format!(
                "{{{}\"\":null}}",
                row(100_000, |n| format!("\"{n}\":[],"))
            ))),
        ),
    ])
}

pub(crate) fn answers() -> Vec<Nasty> {
    let field = |number: u8, inside: &[u8]| {
        let mut bytes = vec![number << 3 | 2];
        let mut length = inside.len();
        while length > 127 {
            bytes.push(length as u8 | 128);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend(inside);
        bytes
    };
    let groups = vec![0x0b; 100_000];
    vec![
        nasty("nothing", ""),
        nasty("a length of 64 MiB", [0x0a, 0x80, 0x80, 0x80, 0x20]),
        nasty(
            "a length of 2^64",
            [
                0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
            ],
        ),
        nasty("open groups", groups.clone()),
        nasty("open groups in a pod", field(1, &groups)),
        nasty("no UTF-8", field(1, &field(1, &[0xff; 1000]))),
        nasty("many empty pods", [0x0a, 0x00].repeat(200_000)),
        nasty(
            "many empty containers",
            field(1, &[0x1a, 0x00].repeat(200_000)),
        ),
        nasty(
            "many ids",
            field(1, &field(3, &field(2, &[0x12, 0x00].repeat(200_000)))),
        ),
        nasty(
            "more than an answer may have",
            field(1, &field(1, &vec![b'a'; 17 << 20])),
        ),
        nasty(
            "control characters",
            field(1, &field(1, "\u{1b}[2J".repeat(100_000).as_bytes())),
        ),
    ]
}
