-- Exceptions, threads, floating point and a case in Haskell.
{-# LANGUAGE ScopedTypeVariables #-}
module Main where

import Control.Concurrent
import Control.Exception
import Control.Monad
import qualified Data.Map.Strict as M
import System.Exit

data Refused = Refused Int deriving Show
instance Exception Refused

act :: Int -> Int
act n = case n `mod` 8 of
  0 -> n + 3
  1 -> n * 5
  2 -> n - 7
  3 -> throw (Refused n)
  4 -> n * 2 + 1
  5 -> n * 4
  6 -> n `div` 3
  _ -> negate n
{-# NOINLINE act #-}

guarded :: Int -> IO Int
guarded n = evaluate (act n) `catch` \(Refused c) -> return (c * 100)

main :: IO ()
main = do
  total <- sum <$> mapM guarded [0 .. 999]
  putStrLn ("sum " ++ show total)
  done <- newEmptyMVar
  forM_ [1 .. 4] $ \k -> forkIO $ do
    part <- sum <$> mapM guarded [k .. k + 299]
    putMVar done $! part
  parts <- replicateM 4 (takeMVar done)
  putStrLn ("total " ++ show (sum parts))
  let wave = sum [sin (i * 0.1) * sqrt i | i <- [1 .. 99]] :: Double
  putStrLn ("wave " ++ show (fromIntegral (round (wave * 1e6)) / 1e6 :: Double))
  let m = M.fromListWith (+) [(i `mod` 17, i) | i <- [1 .. 5000 :: Int]]
  print (M.foldl' (+) 0 m, M.lookup 3 m)
  r <- try (evaluate (1 `div` (length (show total) - 7 + 0 * M.size m))) :: IO (Either ArithException Int)
  print r
  h <- try (evaluate (head ([] :: [Int]))) :: IO (Either SomeException Int)
  putStrLn (either (const "empty") show h)
  v <- newEmptyMVar :: IO (MVar Int)
  t <- forkIO (threadDelay 10000000 `catch` \(e :: AsyncException) -> putMVar v 7)
  yield
  threadDelay 1000
  killThread t
  takeMVar v >>= print
  print (product [1 .. 60 :: Integer])
  exitWith (ExitFailure 3)
