//! Good shapes say what is known of the real nodes; bad ones name every fault.

use super::*;

fn faults(edit: impl Fn(&str) -> String) -> String {
    let text = edit(include_str!("../../shapes/B4.8.toml"));
    match Shape::parse("test", &text).unwrap_err() {
        LabError::ShapeFaults { faults, .. } => {
            faults.iter().map(|fault| format!("{fault}\n")).collect()
        }
        other => format!("{other}: {}", std::error::Error::source(&other).unwrap()),
    }
}

#[test]
fn b4_8_has_the_known_facts() {
    let shape = Shape::named("B4.8").unwrap();
    let rails = shape.rails();
    let nics: Vec<_> = rails
        .iter()
        .step_by(2)
        .map(|rail| rail.pci.as_str())
        .collect();
    let buses = ["0c", "16", "47", "4b", "89", "93", "c3", "d1"];
    assert_eq!(nics, buses.map(|bus| format!("0000:{bus}:00.0")));
    let rdma = |i: usize| rails[i].rdma.as_str();
    assert_eq!(
        [rdma(0), rdma(1), rdma(15)],
        ["mlx5_5", "mlx5_6", "mlx5_12"]
    );
    let mut numbers: Vec<u32> = rails
        .iter()
        .chain(&shape.front_ends())
        .map(|port| port.rdma.trim_start_matches("mlx5_").parse().unwrap())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..18).collect::<Vec<_>>());
    let numa: Vec<_> = shape.gpus().iter().map(|gpu| gpu.numa_node).collect();
    assert_eq!(numa, [3, 3, 1, 1, 7, 7, 5, 5]);
    assert_eq!([shape.socket(3), shape.socket(5)], [0, 1]);
}

#[test]
fn every_shape_is_usable_and_its_gpus_are_distinct() {
    for name in NAMES {
        let shape = Shape::named(name).unwrap();
        let mut uuids: Vec<_> = shape.gpus().into_iter().map(|gpu| gpu.uuid).collect();
        assert_eq!(shape.name, name);
        assert_eq!(uuids.len(), 8);
        assert!(
            uuids
                .iter()
                .all(|uuid| uuid.len() == "GPU-01234567-0123-0123-0123-0123456789ab".len())
        );
        uuids.sort();
        uuids.dedup();
        assert_eq!(uuids.len(), 8);
    }
    assert_eq!(Shape::named("S8").unwrap().rails().len(), 8);
}

#[test]
fn all_faults_come_together_with_their_fields() {
    let text = faults(|good| {
        good.replace("mtu = 4220", "mtu = 40\ncolour = \"red\"")
            .replace("bus = 0x0c,", "bus = 0x0d, slot = 3,")
            .replace("numa_node = 7", "numa_node = 8")
            .replace("mlx5_17", "mlx5_5")
            .replace("bus = 0xd6", "bus = 0xd0")
            .replace("10.140.66.1\"", "10.141.0.1\"")
    });
    assert_eq!(
        text,
        "colour: unknown field\n\
         roots[0].devices[0].slot: unknown field\n\
         mtu: 40 is not in 1280 to 65535\n\
         roots[0].devices[0].bus: 0x0d must be 0x0c, the root's next\n\
         roots[2].numa_node: 8 is not in 0 to 7\n\
         roots[2].devices[4].front_end: mlx5_5 is already roots[0].devices[0].nic[0]\n\
         roots[3].devices[2].bus: 0xd0 is not in 0xd2 to 0xff\n\
         gateway: 10.141.0.1 is not in 10.140.66.66/24\n"
    );
}

#[test]
fn a_device_is_one_thing() {
    let one = "must have one of nic, front_end, gpu = true or switch";
    for bad in ["gpu = false", "gpu = true, front_end = \"x\""] {
        let text = faults(|good| good.replacen("gpu = true", bad, 1));
        assert!(
            text.contains(&format!("roots[0].devices[1]: {one}")),
            "{text}"
        );
    }
    let nested = "switch = [{ bus = 0x11, switch = [] }]";
    assert!(
        faults(|good| good.replacen("gpu = true", nested, 1)).contains("switch[0]: must have one")
    );
}

#[test]
fn broken_toml_and_wrong_types_say_where() {
    assert!(faults(|good| format!("{good}[[")).contains("cannot be read"));
    assert!(
        faults(|good| good.replace("numa_nodes = 8", "numa_nodes = \"8\"")).contains("numa_nodes")
    );
    assert!(faults(|good| good.replace("numa_nodes = 8\n", "")).contains("numa_nodes"));
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let error = Shape::named("B200").unwrap_err();
    assert_eq!(error.to_string(), "no shape is called B200");
    assert!(error.hint().unwrap().contains("H100.8"));
    assert!(matches!(
        Shape::named("/nowhere/x.toml"),
        Err(LabError::Io { .. })
    ));
}
