(* Exceptions, threads, floating point and a match in OCaml. *)
exception Refused of int

let act n =
  match n mod 8 with
  | 0 -> n + 3
  | 1 -> n * 5
  | 2 -> n - 7
  | 3 -> raise (Refused n)
  | 4 -> n lxor 0x55
  | 5 -> n lsl 2
  | 6 -> n / 3
  | _ -> -n

let guarded n = try act n with Refused code -> code * 100
let word = function "one" -> "eins" | "two" -> "zwei" | "seven" -> "sieben" | _ -> "viele"

let () =
  let sum = ref 0 in
  for i = 0 to 999 do
    sum := !sum + guarded i
  done;
  Printf.printf "sum %d %s %s\n" !sum (word "two") (word "nine");
  let lock = Mutex.create () and total = ref 0 in
  let work first =
    for i = first to first + 299 do
      let n = guarded i in
      Mutex.lock lock;
      total := !total + n;
      Mutex.unlock lock;
      if i mod 50 = 0 then Thread.yield ()
    done
  in
  List.iter Thread.join (List.init 4 (Thread.create work));
  Printf.printf "total %d\n" !total;
  let wave = ref 0. in
  for i = 1 to 99 do
    wave := !wave +. (sin (float i *. 0.1) *. sqrt (float i))
  done;
  Printf.printf "wave %.6f\n" !wave;
  let table = Hashtbl.create 7 in
  for i = 1 to 5000 do
    let key = i mod 17 in
    Hashtbl.replace table key (i + try Hashtbl.find table key with Not_found -> 0)
  done;
  Printf.printf "table %d %d\n" (Hashtbl.length table) (Hashtbl.find table 3);
  (try ignore [| 1; 2 |].(!sum) with Invalid_argument text -> print_endline text);
  (try ignore (1 / (Hashtbl.length table - 17)) with Division_by_zero -> print_endline "division");
  let rec deep n = if n = 0 then 0 else 1 + deep (n - 1) in
  Printf.printf "deep %d\n" (deep 100000);
  at_exit (fun () -> print_endline "end");
  exit 3
