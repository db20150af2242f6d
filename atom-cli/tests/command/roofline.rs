//! The roofline picture of a profile of `mix`: its points stand where the profile's figures say.

use std::path::Path;
use std::process::Command;

use crate::common::Folder;
use crate::common::browser::{drive, is_installed};
use serde_json::Value;

const SOURCE: &str = "\
#define N 1000
double a[N], b[N], c[N];
__attribute__((noipa)) void triad(double k) {
    for (int i = 0; i < N; i++)
        a[i] = b[i] + k * c[i];
}
__attribute__((noipa)) double poly(double x) {
    double s = 0;
    for (int i = 0; i < 3000; i++)
        s = s * x + 1.5;
    return s;
}
int main(void) {
    for (int i = 0; i < 20; i++)
        triad(2);
    return poly(0.5) > 100;
}
";

/// The driver's commands: all points of the picture.
const POINTS: &str = r##"
    const points = () => [...document.querySelectorAll("#roof .point")].map((p) => ({
        name: p.dataset.name, x: Number(p.getAttribute("cx")), y: Number(p.getAttribute("cy")),
        intensity: Number(p.dataset.intensity), height: Number(p.dataset.height),
    }));
"##;

/// A point of the picture.
struct Point {
    x: f64,
    y: f64,
    intensity: f64,
    height: f64,
}

fn point(found: &Value, list: &str, name: &str) -> Point {
    let points = found[list].as_array().unwrap();
    let point = points.iter().find(|point| point["name"] == name);
    let point = point.unwrap_or_else(|| panic!("{name} in {found}"));
    let number = |key: &str| point[key].as_f64().unwrap();
    Point {
        x: number("x"),
        y: number("y"),
        intensity: number("intensity"),
        height: number("height"),
    }
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-3 * a.abs().max(b.abs())
}

/// A folder with the profile `mix.profile` of the program.
fn measured() -> Folder {
    let folder = Folder::new();
    folder.write("app.c", SOURCE);
    let compiled = Command::new("gcc")
        .current_dir(folder.path())
        .args(["-g", "-O1", "-static", "app.c", "-o", "app"])
        .status();
    assert!(compiled.expect("gcc runs").success());
    folder.atom_ok(&[
        "app",
        "--tool",
        "mix",
        "-o",
        "app.mix",
        "--",
        "--json",
        "mix.json",
        "--profile",
        "mix.profile",
    ]);
    let status = Command::new(Path::new("./app.mix"))
        .current_dir(folder.path())
        .status();
    assert!(status.expect("it runs").success());
    folder
}

#[test]
fn points_stand_where_the_figures_say() {
    if !is_installed() {
        return;
    }
    let folder = measured();
    let options = [
        "--seconds",
        "0.001",
        "--peak-flops",
        "20G",
        "--bandwidth",
        "10G",
    ];
    let mut command = vec!["report", "mix.profile", "--html", "page.html"];
    command.extend(options);
    folder.atom_ok(&command);
    let script = format!(
        r##"{POINTS}
        const out = {{}};
        click("[role=tab]", "Roofline"); await settle();
        out.rate = points();
        out.roof = one("#roof .roof").getAttribute("points").split(" ").map((p) => p.split(",").map(Number));
        const select = one("#roof-y"); select.value = "flop"; select.dispatchEvent(new Event("input"));
        out.flop = points();
        out.roofs = all("#roof .roof").length;
        type("#find", "poly"); out.faded = all("#roof .faded").map((p) => p.dataset.name);
        type("#find", "");
        document.querySelector("#roof .point[data-name=poly]").dispatchEvent(new MouseEvent("click")); await settle();
        out.opened = texts("#code-name");
        return out;
        "##
    );
    let found = drive(&folder, "page.html", &script);

    // The figures of the report, and those of the table as comma-separated values.
    let json: Value = serde_json::from_slice(&folder.read("mix.json")).unwrap();
    let row = |name: &str| {
        let rows = json["procedures"].as_array().unwrap();
        let row = rows.iter().find(|row| row["procedure"] == name).unwrap();
        ["FLOP", "bytes", "instructions"].map(|key| row[key].as_f64().unwrap())
    };
    let csv = folder.atom_ok(&["report", "mix.profile", "--table", "procedures", "--csv"]);
    let heads: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let cell = |name: &str, column: &str| -> f64 {
        let line = csv
            .lines()
            .find(|line| line.ends_with(&format!(",{name}")))
            .unwrap();
        let at = heads.iter().position(|head| *head == column).unwrap();
        line.split(',').nth(at).unwrap().parse().unwrap()
    };
    let instructions = json["instructions"].as_f64().unwrap();
    for name in ["triad", "poly"] {
        let [flop, bytes, own] = row(name);
        assert_eq!(
            [
                cell(name, "FLOP"),
                cell(name, "bytes"),
                cell(name, "instructions")
            ],
            [flop, bytes, own]
        );
        let rate = point(&found, "rate", name);
        assert!(is_near(rate.intensity, flop / bytes), "{name}");
        assert!(
            is_near(rate.height, flop / (0.001 * own / instructions)),
            "{name}"
        );
        let count = point(&found, "flop", name);
        assert_eq!((count.intensity, count.height), (rate.intensity, flop));
    }
    let [flop, bytes, _] = row("triad");
    assert_eq!((flop, bytes), (40_000.0, 20.0 * (24_000.0 + 8.0)));
    let whole = point(&found, "rate", "(all)");
    assert!(is_near(
        whole.height,
        json["FLOP"].as_f64().unwrap() / 0.001
    ));

    check_axes(&found);
    assert_eq!(found["roofs"], 0);
    let faded: Vec<String> = serde_json::from_value(found["faded"].clone()).unwrap();
    assert!(faded.contains(&"triad".to_owned()) && !faded.contains(&"poly".to_owned()));
    assert_eq!(found["opened"][0], "poly");
}

/// Both axes are logarithmic: a decade has the same length everywhere. The roofs meet where they should.
fn check_axes(found: &Value) {
    let whole = point(found, "rate", "(all)");
    let (triad, poly) = (point(found, "rate", "triad"), point(found, "rate", "poly"));
    let decade =
        |from: &Point, to: &Point| (to.x - from.x) / (to.intensity / from.intensity).log10();
    assert!(is_near(decade(&triad, &poly), decade(&whole, &poly)));
    let height = |from: &Point, to: &Point| (to.y - from.y) / (to.height / from.height).log10();
    let roof: Vec<[f64; 2]> = serde_json::from_value(found["roof"].clone()).unwrap();
    let x =
        |intensity: f64| triad.x + decade(&triad, &poly) * (intensity / triad.intensity).log10();
    let y = |rate: f64| triad.y + height(&triad, &whole) * (rate / triad.height).log10();
    let ridge = roof[1];
    assert!(
        (ridge[0] - x(2.0)).abs() < 0.5 && (ridge[1] - y(20e9)).abs() < 0.5,
        "{roof:?}"
    );
    assert_eq!(roof.last().unwrap()[1], ridge[1]);
}
