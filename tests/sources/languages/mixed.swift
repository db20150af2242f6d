// Errors, threads, floating point, async tasks and a switch in Swift.
import Foundation

struct Refused: Error { let code: Int }

func act(_ n: Int) throws -> Int {
    switch n % 8 {
    case 0: return n + 3
    case 1: return n * 5
    case 2: return n - 7
    case 3: throw Refused(code: n)
    case 4: return n ^ 0x55
    case 5: return n << 2
    case 6: return n / 3
    default: return -n
    }
}

func guarded(_ n: Int) -> Int {
    defer { _ = n }
    do { return try act(n) } catch let refused as Refused { return refused.code * 100 } catch { return 0 }
}

actor Total {
    var sum = 0
    func add(_ n: Int) { sum += n }
}

func word(_ key: String) -> String {
    switch key {
    case "one": return "eins"
    case "two": return "zwei"
    default: return "viele"
    }
}

protocol Shape { func area() -> Double }
struct Square: Shape { let side: Double; func area() -> Double { side * side } }
final class Circle: Shape { let r: Double; init(_ r: Double) { self.r = r }; func area() -> Double { r * r * 3 } }

@main
struct Main {
    static func main() async {
        print("sum", (0..<1000).map(guarded).reduce(0, +))
        let total = Total()
        await withTaskGroup(of: Void.self) { group in
            for k in 0..<4 {
                group.addTask { for i in k..<(k + 300) { await total.add(guarded(i)) } }
            }
        }
        print("total", await total.sum)
        var wave = 0.0
        for i in 1..<100 { wave += sin(Double(i) * 0.1) * Double(i).squareRoot() }
        print("wave", (wave * 1e6).rounded() / 1e6)
        let shapes: [any Shape] = [Square(side: 2), Circle(1.5)]
        print(shapes.map { $0.area() }, word("two"), word("nine"))
        var counts: [String: Int] = [:]
        for w in "the cat and the dog and the bird".split(separator: " ") { counts[String(w), default: 0] += 1 }
        print(counts.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" })
        exit(3)
    }
}
