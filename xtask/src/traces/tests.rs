//! The page says what was found, and is not written where its claim does not hold.

use super::*;

fn shape(name: &str) -> Outcome {
    let topology = of_shape(name).unwrap();
    outcome((SEED, (name.to_owned(), "A shape of the lab", topology)))
}

#[test]
fn the_claim_holds_and_can_fail() {
    let mut outcome = shape("B4.8");
    claim(&outcome).unwrap();
    for (_, tally) in &mut outcome.tallies {
        tally.all_near -= 1;
    }
    let error = claim(&outcome).unwrap_err().to_string();
    assert!(
        error.ends_with("left 1 of 1000 with a rail that is not near"),
        "{error}"
    );
}

#[test]
fn the_page_has_a_row_for_each_allocator_and_node() {
    let page = page::page(&[shape("B4.8"), shape("H100.8")]).unwrap();
    let rows = |start: &str| page.lines().filter(|line| line.starts_with(start)).count();
    // Two nodes, and three scenes with five jobs.
    for start in ["| Podrail ", "| `restricted` ", "| kubelet's choice "] {
        assert_eq!(rows(start), 2 + 5, "{start}");
    }
    assert!(page.contains("| TopologyAffinityError |"), "{page}");
    let widest = page
        .lines()
        .filter(|line| !line.starts_with('|'))
        .map(str::len)
        .max();
    assert!(widest <= Some(120), "{widest:?}");
}

#[test]
fn a_scene_shows_runs_of_numbers() {
    let section = scenes::SCENES[0].section(&of_shape("B4.8").unwrap(), SEED);
    let rows: Vec<Vec<&str>> = section
        .lines()
        .map(|line| line.split('|').map(str::trim).collect())
        .filter(|cells: &Vec<&str>| cells.get(1) == Some(&"Podrail"))
        .collect();
    assert_eq!(rows[0][3..6], ["2-5", "4-11", "8 of 8"]);
    assert_eq!(rows[1][3..6], ["0, 1, 6, 7", "0-3, 12-15", "8 of 8"]);
}
